package growth

import (
	"testing"

	"pgregory.net/rapid"
)

// A walk is that of a twin that makes one step after the other.
func TestWalkIsThatOfTheTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := Walk{Samples: rapid.IntRange(1, 90).Draw(t, "samples"), First: rapid.IntRange(1, 100).Draw(t, "first")}
		for step, batch := int64(1), w.First; len(w.Changes) < 5 && rapid.Bool().Draw(t, "another"); {
			step += rapid.Int64Range(1, 30).Draw(t, "steps")
			batch += rapid.IntRange(1, 60).Draw(t, "more")
			w.Changes = append(w.Changes, Change{Step: step, Batch: batch})
		}
		steps := rapid.Int64Range(0, 60).Draw(t, "length")
		// wanted is the place at which a job of so many steps of the first batch ends.
		var wanted, at Place
		advance := func(p Place, batch int) Place {
			if p.First += batch; p.First >= w.Samples {
				return Place{Pass: p.Pass + 1}
			}
			return p
		}
		for range steps {
			wanted = advance(wanted, w.First)
		}
		last, done := int64(0), steps == 0
		for step := int64(1); step < 200; step++ {
			if got := w.Place(step); got != at {
				t.Fatalf("step %d begins at %+v, want %+v", step, got, at)
			}
			batch := w.First
			for _, c := range w.Changes {
				if c.Step <= step {
					batch = c.Batch
				}
			}
			if got := w.At(step).Batch; got != batch {
				t.Fatalf("step %d has a batch of %d, want %d", step, got, batch)
			}
			at = advance(at, batch)
			if !done {
				last = step
				done = at.Pass > wanted.Pass || at.Pass == wanted.Pass && at.First >= wanted.First
			}
		}
		if got := w.Last(steps); got != last {
			t.Fatalf("the job has %d steps, want %d", got, last)
		}
	})
}

// Batches of any size do not overflow.
func TestWalkWithHugeBatches(t *testing.T) {
	w := Walk{Samples: 7, First: 1<<63 - 1, Changes: []Change{{Step: 1e12, Batch: 1<<63 - 1}}}
	if got := w.Place(1e12 + 1); got != (Place{Pass: 1e12}) || w.Last(5) != 5 {
		t.Errorf("place %+v, %d steps", got, w.Last(5))
	}
}
