package elastic_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
)

// The parts of a step of a program's own loop add up, steps follow each other without a gap, and the members that wait name the one
// that they wait for. The turn that a death ends is lost time.
func TestTimesOfALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const steps, slow = 20, 30 * time.Millisecond
		r := startLoops(t, 3, 1, func(ctx context.Context, g *elastic.Group, l *ledger) error {
			for t := range g.Steps(ctx, l.state(), steps, elastic.Equal) {
				lo, hi := t.Part(samplesOfStep)
				sum := l.part(lo, hi)
				wait(20 * time.Millisecond)
				if g.Self().Index == 1 {
					wait(slow)
				}
				if err := collective.AllReduce(ctx, t.Comm, sum, sum, collective.Sum[int64]); err == nil {
					l.commit(sum)
				}
			}
			return g.Err()
		})
		wait(500 * time.Millisecond)
		r.Kill(2)
		wantLedger(t, steps, r.finish(t, 0, 1))
		lost := 0.0
		last := make(map[string]event.Event)
		for _, e := range r.sink.of("step") {
			s := e.Body.(event.Step)
			if s.Began.IsZero() {
				continue
			}
			sum := s.LostMS + s.PointMS + s.DataMS + s.ComputeMS + s.WaitMS + s.ReduceMS + s.ApplyMS + s.CommitMS
			if math.Abs(sum-s.StepMS) > 1e-3 {
				t.Errorf("step %d of %s: parts of %v ms in %v ms: %+v", e.Step, e.Peer, sum, s.StepMS, s)
			}
			if p, ok := last[e.Peer]; ok && p.Epoch == e.Epoch && p.Step == e.Step-1 {
				b := p.Body.(event.Step)
				if gap := float64(s.Began.Sub(b.Began))/1e6 - b.StepMS; math.Abs(gap) > 1e-3 {
					t.Errorf("step %d of %s begins %v ms after the step before", e.Step, e.Peer, gap)
				}
			}
			last[e.Peer], lost = e, lost+s.LostMS
			want, whom := 30.0, elastic.ID("member-1").Short()
			if e.Index == 1 {
				want, whom = 0, ""
			}
			if math.Abs(s.WaitMS-want) > want/10+0.1 || want > 0 && s.WaitFor != whom {
				t.Errorf("step %d of %s waits %v ms for %q, want %v for %q", e.Step, e.Peer, s.WaitMS, s.WaitFor, want, whom)
			}
		}
		if lost == 0 {
			t.Error("the turn that the death has ended is not lost")
		}
	})
}

// A stall that was logged ends in the log, with its whole duration, also if the member that causes it dies.
func TestStallsEnd(t *testing.T) {
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const steps, pause = 20, 20 * time.Second
			r := startLoops(t, 3, 1, func(ctx context.Context, g *elastic.Group, l *ledger) error {
				for t := range g.Steps(ctx, l.state(), steps, elastic.Equal) {
					lo, hi := t.Part(samplesOfStep)
					sum := l.part(lo, hi)
					if g.Self().Index == 1 && l.step == 9 {
						wait(pause)
					}
					if err := collective.AllReduce(ctx, t.Comm, sum, sum, collective.Sum[int64]); err == nil {
						l.commit(sum)
					}
				}
				return g.Err()
			})
			all := []int{0, 1, 2}
			if dies {
				wait(pause / 2)
				r.Kill(1)
				all = []int{0, 2}
			}
			wantLedger(t, steps, r.finish(t, all...))
			open, longest := make(map[string]event.Stall), 0.0
			for _, e := range r.sink.of("stall") {
				s := e.Body.(event.Stall)
				if s.Over {
					if before, ok := open[e.Peer]; !ok || before.SinceMS > s.SinceMS || before.What != s.What || before.Culprit != s.Culprit {
						t.Errorf("%s: the stall %+v ends as %+v", e.Peer, before, s)
					}
					delete(open, e.Peer)
					longest = max(longest, s.SinceMS)
					continue
				}
				open[e.Peer] = s
			}
			delete(open, elastic.ID("member-1").Short()) // it cannot log anything after its death
			if want := milliseconds(pause); len(open) > 0 || longest > want+200 || longest < want/2-200 || !dies && longest < want-200 {
				t.Errorf("dies %t: the longest stall takes %v ms, these do not end: %v", dies, longest, open)
			}
		})
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
