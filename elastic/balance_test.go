package elastic_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
)

// With speeds 1:1:1:1/4 the step time comes close to the optimum, and every sample counts once
// although peers die and join.
func TestLoopBalances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const steps, each = 300, 500 * time.Microsecond // time of a sample at the fast members
		var begun time.Time
		var lasted time.Duration // duration of the steps before the first death
		r := startLoops(t, 4, 1, func(ctx context.Context, g *elastic.Group, l *ledger) error {
			slow := time.Duration(1)
			if g.Self().Index == 3 {
				slow = 4
			}
			for t := range g.Steps(ctx, l.state(), steps) {
				if g.Self().Index == 0 {
					switch l.step {
					case 0:
						begun = time.Now()
					case 100:
						lasted = time.Since(begun)
					}
				}
				lo, hi := t.Part(samplesOfStep)
				sum := l.part(lo, hi)
				wait(time.Duration(hi-lo) * each * slow)
				if err := collective.AllReduce(ctx, t.Comm, sum, sum, collective.Sum[int64]); err == nil {
					l.commit(sum)
				}
			}
			return g.Err()
		})
		wait(2500 * time.Millisecond)
		r.Kill(1)
		wait(100 * time.Millisecond)
		late := r.Join()
		wantLedger(t, steps, r.finish(t, 0, 2, 3, late))
		best := 100 * samplesOfStep * each * 4 / 13
		// Calls, with delays of up to 2 ms, do not count as computing.
		if computing := lasted - 100*messages(r); float64(best)/float64(computing) < 0.95 {
			t.Errorf("100 steps took %v, %v without calls; the sum of speeds allows %v", lasted, computing, best)
		}
		if n := len(r.sink.of("shares")); n < 2 {
			t.Errorf("%d shares events", n)
		}
	})
}

// messages returns the mean time from the end of computing to the end of the step, at the member
// that computed the longest.
func messages(r *run) time.Duration {
	type step struct{ compute, total float64 }
	slowest := make(map[int64]step)
	for _, e := range r.sink.of("step") {
		if s := e.Body.(event.Step); s.ComputeMS > slowest[e.Step].compute {
			slowest[e.Step] = step{s.ComputeMS, s.StepMS}
		}
	}
	sum := 0.0
	for n := int64(1); n <= 100; n++ {
		sum += slowest[n].total - slowest[n].compute
	}
	return time.Duration(sum / 100 * float64(time.Millisecond))
}
