package elastic

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/elastic/member"
)

// A beat survives its encoding, with all fields.
func TestBeatRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := beat{
			Entered: rapid.Uint64().Draw(t, "entered"), Step: rapid.Uint64().Draw(t, "step"),
			Reply: rapid.Bool().Draw(t, "reply"), Deaf: rapid.Bool().Draw(t, "deaf"), Leaving: rapid.Bool().Draw(t, "leaving"), Ended: rapid.Bool().Draw(t, "ended"), Sole: rapid.Bool().Draw(t, "sole"),
			Busy: rapid.StringN(0, 20, maxBusy).Draw(t, "busy"),
		}
		if rapid.Bool().Draw(t, "first") {
			want.First[7] = rapid.ByteMin(1).Draw(t, "hash")
		}
		b := want.append(nil)
		got, err := decodeBeat(b[1:])
		if err != nil || got != want || letterKind(b[0]) != letterBeat {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
	})
}

// A reason that is too long for a beat is truncated.
func TestBeatOfVeryBusy(t *testing.T) {
	b := beat{Busy: strings.Repeat("x", 300)}.append(nil)
	if got, err := decodeBeat(b[1:]); err != nil || len(got.Busy) != maxBusy {
		t.Errorf("got %d bytes, %v", len(got.Busy), err)
	}
}

// Decoders return an error for any malformed input, and accepted input has exactly one encoding.
func FuzzLetters(f *testing.F) {
	f.Add([]byte{})
	f.Add(beat{Entered: 3, Step: 9, Reply: true, First: [32]byte{1}, Busy: "evaluating"}.append(nil))
	f.Add(yield{Epoch: 300}.append(nil))
	f.Add(probing{About: "x", Heard: true}.append(letterProbed, nil))
	f.Add(calling{ID: "x", Info: `{"h":"host"}`}.append(nil))
	f.Add(memberLetter(member.Message{Kind: member.Status}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		switch letterKind(b[0]) {
		case letterBeat:
			if got, err := decodeBeat(b[1:]); err == nil {
				if again, err := decodeBeat(got.append(nil)[1:]); err != nil || again != got {
					t.Fatalf("%+v is encoded as %+v, %v", got, again, err)
				}
			}
		case letterProbe, letterProbed:
			if got, err := decodeProbe(b[1:]); err == nil {
				if again, err := decodeProbe(got.append(letterProbe, nil)[1:]); err != nil || again != got {
					t.Fatalf("%+v is encoded as %+v, %v", got, again, err)
				}
			}
		case letterCall:
			if got, err := decodeCall(b[1:]); err == nil {
				if again, err := decodeCall(got.append(nil)[1:]); err != nil || again != got {
					t.Fatalf("%+v is encoded as %+v, %v", got, again, err)
				}
			}
		case letterYield:
			if got, err := decodeYield(b[1:]); err == nil {
				if again, err := decodeYield(got.append(nil)[1:]); err != nil || again != got {
					t.Fatalf("%+v is encoded as %+v, %v", got, again, err)
				}
			}
		}
	})
}

// Replies come from members; still, decoding does not panic on any input.
func FuzzReply(f *testing.F) {
	f.Add([]byte(`{"refused":"x"}`))
	f.Add([]byte(`{"members":[{"id":"a"}]}`))
	f.Add([]byte(`{"members":[{"id":"a"}],"epoch":7,"parked":"x","later":"y"}`))
	f.Add([]byte(`{"members":[{"id":"a"}],"coming":[{"id":"b","addrs":["/ip4/192.0.2.1/tcp/7"]}],"cut_off":"x"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeReply(b)
		if err == nil && r.Refused == "" && r.Wait == "" && len(r.Members) == 0 {
			t.Fatalf("%q is taken for an answer", b)
		}
	})
}

func TestInfo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		addr := rapid.StringMatching(`/ip4/[0-9.]{7,15}/tcp/[0-9]{5}`)
		want := Member{ID: "id", Index: rapid.IntRange(0, 9).Draw(t, "index"), Host: rapid.StringN(0, 30, 60).Draw(t, "host"),
			Launcher: "launcher", Addrs: rapid.SliceOfN(addr, 0, 40).Draw(t, "addrs"),
			Machine: rapid.StringN(0, 16, 16).Draw(t, "machine"), Site: rapid.StringMatching(`[a-z]{0,32}`).Draw(t, "site")}
		m, err := toMember(want)
		if err != nil || len(m.Info) > member.MaxInfo {
			t.Fatalf("%d bytes, %v", len(m.Info), err)
		}
		got := fromMember(m)
		if got.ID != want.ID || got.Index != want.Index || got.Launcher != want.Launcher || got.Machine != want.Machine || got.Site != want.Site || len(got.Addrs) > len(want.Addrs) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		for i, a := range got.Addrs {
			if a != want.Addrs[i] {
				t.Fatalf("address %d is %q, want %q", i, a, want.Addrs[i])
			}
		}
	})
}

func TestInfoTooLong(t *testing.T) {
	if _, err := toMember(Member{ID: "id", Host: string(bytes.Repeat([]byte("h"), 600))}); err == nil {
		t.Error("a name of 600 bytes was taken")
	}
	if m := fromMember(member.Member{ID: "id", Info: "{"}); m.ID != "id" || m.Addrs != nil {
		t.Errorf("got %+v", m)
	}
}
