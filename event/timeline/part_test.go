package timeline

import (
	"bytes"
	"compress/flate"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/event"
)

// decoded returns the part of another elrun from its pages.
func decoded(t interface{ Fatalf(string, ...any) }, s Snapshot, launcher string) (all Part) {
	for {
		b := EncodePart(s, all.Next)
		if len(b) > MaxPart {
			t.Fatalf("a page of %d bytes", len(b))
		}
		p, err := DecodePart(b, launcher)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if all.Next == 0 {
			all.Former = p.Former
		}
		all.Peers, all.Next = append(all.Peers, p.Peers...), p.Next
		if p.Next == 0 {
			return all
		}
	}
}

// An elrun with its own snapshot and the part of another one knows the peers and the use of their time as with the
// snapshots of both.
func TestPart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		own, other := New(), New()
		peers := rapid.IntRange(2, 150).Draw(t, "peers")
		var members []string
		for i := range peers {
			members = append(members, fmt.Sprintf("peer%d", i))
		}
		for i, id := range members {
			mine, theirs := own, other
			if i%2 > 0 {
				mine, theirs = other, own
			}
			m := event.Member{Who: id, WhoIndex: i / 2, Host: fmt.Sprint("host", i%2), Launcher: fmt.Sprint("L", i%2)}
			theirs.Add(event.Event{Time: at(0), Index: event.NoPeer, Body: m})
			m.PID, m.Began = i+1, at(0)
			mine.Add(event.Event{Time: at(0), Peer: id, Index: i / 2, Body: m})
			mine.Add(event.Event{Time: at(1), Peer: id, Index: i / 2, Epoch: 1, Body: event.View{Members: members, Reason: "start"}})
			last := rapid.SampledFrom(members).Draw(t, "last")
			mine.Add(event.Event{Time: at(110), Peer: id, Index: i / 2, Epoch: 1, Step: 1, Body: step(10, i, i+1, event.Times{WaitMS: 20, WaitFor: last, ReduceMS: 10}, 70)})
		}
		part := decoded(t, other.Snapshot(), "L1")
		want := Merge(own.Snapshot(), other.Snapshot())
		got := Merge(own.Snapshot(), Snapshot{Peers: part.Peers, Former: part.Former})
		if !reflect.DeepEqual(got.Peers, want.Peers) || !reflect.DeepEqual(got.Goodput, want.Goodput) || got.Step != want.Step || len(got.Series.BySteps) == 0 {
			t.Fatalf("got  %+v\nwant %+v", got.Peers, want.Peers)
		}
	})
}

// A launcher cannot tell of the peers of another one, and a peer that does not fit is left out.
func TestPartOfOthers(t *testing.T) {
	s := Snapshot{Peers: []Peer{{ID: "a", Launcher: "L1", Heard: true, Steps: 5}, {ID: "b", Launcher: "L2", Heard: true, Steps: 6},
		{ID: "c", Launcher: "L2", Heard: true, Path: incompressible(2 * MaxPart)}, {ID: "d", Launcher: "L1", Heard: true, Steps: 7}}}
	part := decoded(t, s, "L1")
	if len(part.Peers) != 3 || part.Peers[0].Steps != 5 || part.Peers[1].Heard || part.Peers[1].Steps != 0 || part.Peers[2].Steps != 7 {
		t.Errorf("got %+v", part.Peers)
	}
}

// incompressible returns a text of n bytes that does not get shorter.
func incompressible(n int) string {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"[x>>26]
	}
	return string(b)
}

// Pages come from other hosts. Whatever they hold, the model of all stays usable.
func FuzzPart(f *testing.F) {
	pack := func(text string) []byte {
		var b bytes.Buffer
		w, _ := flate.NewWriter(&b, flate.BestSpeed)
		_, _ = w.Write([]byte(text))
		_ = w.Close()
		return b.Bytes()
	}
	f.Add(EncodePart(Snapshot{Peers: []Peer{{ID: "a", Launcher: "L", Heard: true}}}, 0))
	f.Add(pack(`{"peers":[{"id":"a","launcher":"L","heard":true,"uses":{"useful":-1e300},"waited_for":{"call_ms":1e300},"begin":"0001-01-01T00:00:00Z"}],"next":-5}`))
	f.Add(pack(`{"former":{"peers":-1},"peers":[{"id":"b","heard":true,"ids":["a","a"]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodePart(b, "L")
		if err != nil {
			return
		}
		own := New()
		own.Add(event.Event{Time: at(0), Peer: "own", Body: event.View{Members: []string{"own", "a"}}})
		s := Merge(own.Snapshot(), Snapshot{Peers: p.Peers, Former: p.Former})
		if p.Next < 0 || s.Goodput.Ratio < 0 || s.Goodput.Ratio > 1 || s.Goodput.Peers < 0 || len(s.Goodput.Line()) > maxLine {
			t.Errorf("next %d, %+v", p.Next, s.Goodput)
		}
		for _, x := range s.Stragglers() {
			if x.Waited.Total() < 0 {
				t.Errorf("%+v", x)
			}
		}
	})
}
