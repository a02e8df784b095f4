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
