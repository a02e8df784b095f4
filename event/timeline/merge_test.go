package timeline

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/event"
)

// The models of two elruns, each with the events of its own peers, together say what one model of all events
// says of the peers and their time.
func TestMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, parts := New(), []*Job{New(), New()}
		peers := rapid.IntRange(2, 6).Draw(t, "peers")
		launcher := func(i int) int { return i % 2 }
		id := func(i int) string { return fmt.Sprint("peer", i) }
		add := func(ms, i int, epoch uint64, n int64, b event.Body) {
			e := event.Event{Time: at(float64(ms)), Peer: id(i), Index: i / 2, Epoch: epoch, Step: n, Body: b}
			all.Add(e)
			parts[launcher(i)].Add(e)
		}
		var members []string
		for i := range peers {
			m := event.Member{Who: id(i), WhoIndex: i / 2, Host: fmt.Sprint("host", launcher(i)), Launcher: fmt.Sprint("L", launcher(i)), PID: 10 + i, Began: at(float64(0))}
			add(1, i, 0, 0, m)
			m.PID, m.Began = 0, event.Member{}.Began
			parts[1-launcher(i)].Add(event.Event{Time: at(float64(1)), Index: event.NoPeer, Body: m})
			members = append(members, id(i))
		}
		for i := range peers {
			add(2, i, 1, 0, event.View{Members: members, Reason: "start"})
		}
		now := 10
		for n := int64(1); n <= 5; n++ {
			last := rapid.IntRange(0, peers-1).Draw(t, "last")
			for i := range peers {
				wait := float64(rapid.IntRange(0, 40).Draw(t, "wait"))
				s := step(float64(now), i, i+1, event.Times{WaitMS: wait, WaitFor: id(last), ReduceMS: 10}, 90-wait)
				if i == last {
					s = step(float64(now), i, i+1, event.Times{ReduceMS: 10}, 90)
				}
				add(now+110, i, 1, n, s)
			}
			now += 100
		}
		want, got := all.Snapshot(), Merge(parts[0].Snapshot(), parts[1].Snapshot())
		if want.Goodput.Uses != got.Goodput.Uses || want.Goodput.Line() != got.Goodput.Line() || got.Lacks.Unheard != 0 || got.Step != want.Step {
			t.Fatalf("got  %s\nwant %s, %d unheard, step %d", got.Goodput.Line(), want.Goodput.Line(), got.Lacks.Unheard, got.Step)
		}
		a, b := want.Stragglers(), got.Stragglers()
		if len(a) != len(b) {
			t.Fatalf("%d stragglers, want %d", len(b), len(a))
		}
		for i := range a {
			if a[i].Waited != b[i].Waited {
				t.Fatalf("got %+v, want %+v", b[i], a[i])
			}
		}
	})
	if s := Merge(); s.Seq != 0 || s.Peers != nil {
		t.Errorf("of none: %+v", s)
	}
}
