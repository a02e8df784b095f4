package timeline

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/event"
)

// A reader that gets only the points after its last snapshot knows the same series as one that gets all of them.
func TestSince(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j, n, now, program := New(), int64(0), 0.0, 0
		var known Snapshot
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			for range rapid.IntRange(0, 2000).Draw(t, "steps") {
				n++
				now += 10
				j.Add(event.Event{Time: at(now), Peer: fmt.Sprint("a", program), Index: 0, Epoch: 1, Step: n, Body: step(now-10, 0, 1, event.Times{}, 10)})
				if late := n - 20; late > 0 { // the reports of the other peer come late
					j.Add(event.Event{Time: at(now - 200), Peer: fmt.Sprint("b", program), Index: 1, Epoch: 1, Step: late, Body: step(now-210, 1, 2, event.Times{}, 10)})
				}
			}
			if rapid.IntRange(0, 9).Draw(t, "further program") == 0 {
				n, program = 0, program+1
			}
			want := j.Snapshot()
			b, err := json.Marshal(Since(want, known.Step))
			if err != nil {
				t.Fatal(err)
			}
			var short Snapshot
			if err := json.Unmarshal(b, &short); err != nil {
				t.Fatal(err)
			}
			got, ok := After(short, known)
			if !ok { // a resolution has changed
				got = want
			}
			for i := range want.Series.BySteps {
				wantLevel(t, got.Series.BySteps[i], want.Series.BySteps[i])
				wantLevel(t, got.Series.ByTime[i], want.Series.ByTime[i])
			}
			known = got
		}
	})
}

// wantLevel compares levels, but for the speed of the first point, which has none before it.
func wantLevel(t *rapid.T, got, want Level) {
	if len(got.Points) > 0 && len(want.Points) > 0 {
		got.Points[0].SamplesS, want.Points[0].SamplesS = 0, 0
	}
	if got.Width != want.Width || len(got.Points) != len(want.Points) {
		t.Fatalf("%d points of %d, want %d of %d", len(got.Points), got.Width, len(want.Points), want.Width)
	}
	for i := range want.Points {
		if !reflect.DeepEqual(got.Points[i], want.Points[i]) {
			t.Fatalf("point %d: got %+v, want %+v", i, got.Points[i], want.Points[i])
		}
	}
}

// A snapshot of a watched job is short.
func TestSinceIsShort(t *testing.T) {
	j := New()
	for n := range int64(20_000) {
		j.Add(event.Event{Time: at(float64(n)), Peer: "a", Epoch: 1, Step: n + 1, Body: step(float64(n), 0, 1, event.Times{}, 1)})
	}
	s := j.Snapshot()
	b, err := json.Marshal(Since(s, s.Step-100))
	if err != nil || len(b) > 100_000 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}
