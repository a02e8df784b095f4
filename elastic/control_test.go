package elastic

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/elastic/member"
)

// A decoded heartbeat equals the heartbeat that was encoded.
func TestHeartbeatRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := heartbeat{
			Entered: rapid.Uint64().Draw(t, "entered"), Step: rapid.Uint64().Draw(t, "step"),
			Reply: rapid.Bool().Draw(t, "reply"), Deaf: rapid.Bool().Draw(t, "deaf"), Leaving: rapid.Bool().Draw(t, "leaving"), Ended: rapid.Bool().Draw(t, "ended"), Sole: rapid.Bool().Draw(t, "sole"),
			Stalled: rapid.Bool().Draw(t, "stalled"), Answer: rapid.Bool().Draw(t, "answer"), Failed: rapid.Bool().Draw(t, "failed"),
			Busy: rapid.StringN(0, 20, maxBusy).Draw(t, "busy"),
		}
		if rapid.Bool().Draw(t, "first") {
			want.First[7] = rapid.ByteMin(1).Draw(t, "hash")
		}
		b := want.append(nil)
		got, err := decodeHeartbeat(b[1:])
		if err != nil || got != want || controlKind(b[0]) != controlHeartbeat {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
	})
}

// A reason that is too long for a heartbeat is truncated.
func TestHeartbeatOfVeryBusy(t *testing.T) {
	b := heartbeat{Busy: strings.Repeat("x", 300)}.append(nil)
	if got, err := decodeHeartbeat(b[1:]); err != nil || len(got.Busy) != maxBusy {
		t.Errorf("got %d bytes, %v", len(got.Busy), err)
	}
}

// Decoders do not panic on any input, and a decoded message is the same after another encoding and
// decoding.
func FuzzControl(f *testing.F) {
	f.Add([]byte{})
	f.Add(heartbeat{Entered: 3, Step: 9, Reply: true, First: [32]byte{1}, Busy: "evaluating"}.append(nil))
	f.Add(stepDown{Epoch: 300, Entered: 299}.append(nil))
	f.Add(probeMessage{About: "x", Heard: true}.append(controlProbeReply, nil))
	f.Add(reverseDial{ID: "x", Info: `{"h":"host"}`}.append(nil))
	f.Add(encodeMachineMessage(member.Message{Kind: member.Status}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		switch controlKind(b[0]) {
		case controlHeartbeat:
			if got, err := decodeHeartbeat(b[1:]); err == nil {
				if again, err := decodeHeartbeat(got.append(nil)[1:]); err != nil || again != got {
					t.Fatalf("%+v is encoded as %+v, %v", got, again, err)
				}
			}
		case controlProbe, controlProbeReply:
			if got, err := decodeProbe(b[1:]); err == nil {
				if again, err := decodeProbe(got.append(controlProbe, nil)[1:]); err != nil || again != got {
					t.Fatalf("%+v is encoded as %+v, %v", got, again, err)
				}
			}
		case controlReverseDial:
			if got, err := decodeReverseDial(b[1:]); err == nil {
				if again, err := decodeReverseDial(got.append(nil)[1:]); err != nil || again != got {
					t.Fatalf("%+v is encoded as %+v, %v", got, again, err)
				}
			}
		case controlStepDown:
			if got, err := decodeStepDown(b[1:]); err == nil {
				if again, err := decodeStepDown(got.append(nil)[1:]); err != nil || again != got {
					t.Fatalf("%+v is encoded as %+v, %v", got, again, err)
				}
			}
		}
	})
}

// Decoding a reply does not panic on any input, and returns an error for a reply without content.
func FuzzReply(f *testing.F) {
	f.Add([]byte(`{"refused":"x"}`))
	f.Add([]byte(`{"members":[{"id":"a"}]}`))
	f.Add([]byte(`{"members":[{"id":"a"}],"epoch":7,"parked":"x","later":"y"}`))
	f.Add([]byte(`{"members":[{"id":"a"}],"coming":[{"id":"b","addrs":["/ip4/192.0.2.1/tcp/7"]}],"cut_off":"x"}`))
	f.Add([]byte(`{"same":true}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeReply(b)
		if err == nil && r.Refused == "" && r.Wait == "" && !r.Same && len(r.Members) == 0 {
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
