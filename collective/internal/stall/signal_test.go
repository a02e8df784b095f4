package stall

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/collective/transport"
)

const testRanks = 300

func drawSignal(t *rapid.T) Signal {
	rank := rapid.Int32Range(-1, testRanks-1)
	count := rapid.Int32Range(0, testRanks)
	call := func(name string) transport.Call {
		c, _ := transport.DecodeCall(rapid.SliceOfN(rapid.Byte(), transport.CallSize, transport.CallSize).Draw(t, name))
		return c
	}
	s := Signal{
		Kind:     rapid.SampledFrom([]Kind{Ask, Tell}).Draw(t, "kind"),
		Envelope: transport.Envelope{Comm: rapid.Uint64().Draw(t, "comm"), Seq: rapid.Uint32().Draw(t, "seq"), Call: call("call")},
		At:       time.Duration(rapid.Int64().Draw(t, "at")),
		State:    State(rapid.IntRange(0, int(Closed)).Draw(t, "state")),
		End: End{Cause: Cause(rapid.IntRange(0, int(Silent)).Draw(t, "why")), Rank: rank.Draw(t, "rank"),
			Hops:   count.Draw(t, "hops"),
			Anchor: Anchor{rank.Draw(t, "anchor"), time.Duration(rapid.Int64Range(0, 1<<62).Draw(t, "since")), count.Draw(t, "to anchor"), rapid.Bool().Draw(t, "whole")},
			Slow:   Link{rank.Draw(t, "from"), rank.Draw(t, "to"), time.Duration(rapid.Int64Range(0, 1<<62).Draw(t, "took"))},
			Path:   rapid.SliceOfN(rapid.Int32Range(0, testRanks-1), 1, MaxPath).Draw(t, "path")},
	}
	s.Blocker = transport.Envelope{Comm: rapid.Uint64().Draw(t, "blocker"), Seq: rapid.Uint32().Draw(t, "place"), Call: call("blocking call")}
	s.Sends, s.Full = rapid.Bool().Draw(t, "sends"), rapid.Bool().Draw(t, "full")
	return s
}

func TestSignalRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawSignal(t)
		b := want.Append(nil)
		if len(b) > transport.MaxSignal {
			t.Fatalf("%d bytes, at most %d", len(b), transport.MaxSignal)
		}
		got, err := Decode(b, testRanks)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
	})
}

// Decode refuses signals that no rank sends, in particular signals with ranks that do not
// exist.
func TestSignalRefused(t *testing.T) {
	good := Signal{Kind: Tell, End: End{Cause: Absent, Rank: 2, Hops: 1, Slow: noLink(), Path: []int32{2}}}
	if _, err := Decode(good.Append(nil), 3); err != nil {
		t.Fatal(err)
	}
	b := good.Append(nil)
	for name, b := range map[string][]byte{"empty": nil, "short": b[:len(b)-1], "long": append(b[:len(b):len(b)], 0), "zeros": make([]byte, len(b))} {
		if s, err := Decode(b, 3); err == nil {
			t.Errorf("%s: got %+v", name, s)
		}
	}
	for name, change := range map[string]func(s *Signal){
		"kind": func(s *Signal) { s.Kind = 3 }, "state": func(s *Signal) { s.State = Closed + 1 }, "end": func(s *Signal) { s.End.Cause = Slow },
		"rank": func(s *Signal) { s.End.Rank = 3 }, "negative rank": func(s *Signal) { s.End.Rank = -2 },
		"link": func(s *Signal) { s.End.Slow.To = 3 }, "other end": func(s *Signal) { s.End.Slow.From = -2 }, "time": func(s *Signal) { s.End.Slow.ResponseTime = -1 },
		"anchor": func(s *Signal) { s.End.Anchor.Rank = 3 }, "way to the anchor": func(s *Signal) { s.End.Anchor.Hops = -1 }, "since": func(s *Signal) { s.End.Anchor.Since = -1 },
		"path": func(s *Signal) { s.End.Path = []int32{3} },
		"hops": func(s *Signal) { s.End.Hops = 4 }, "deadlock of none": func(s *Signal) { s.End.Cause, s.End.Path = Deadlock, nil },
	} {
		s := good
		if change(&s); true {
			if got, err := Decode(s.Append(nil), 3); err == nil {
				t.Errorf("%s: got %+v", name, got)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{})
	for _, s := range []Signal{{Kind: Ask}, {Kind: Tell, State: Past, At: time.Second},
		{Kind: Tell, End: End{Cause: Deadlock, Rank: 3, Hops: 2, Slow: noLink(), Path: []int32{3, 1}}}} {
		f.Add(s.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Decode(b, testRanks)
		if err != nil {
			return
		}
		if s.End.Cause == Deadlock {
			s.End.cycle()
		}
		again, err := Decode(s.Append(nil), testRanks)
		if len(s.End.Path) <= MaxPath && (err != nil || !reflect.DeepEqual(again, s)) {
			t.Fatalf("%+v became %+v, %v", s, again, err)
		}
		if !bytes.Equal(again.Append(nil), s.Append(nil)) {
			t.Fatalf("%x became %x", s.Append(nil), again.Append(nil))
		}
	})
}
