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
		r := startLoops(t, 4, 1, func(ctx context.Context, g *elastic.Group, l *ledger) error {
			slow := time.Duration(1)
			if g.Self().Index == 3 {
				slow = 4
			}
			for t := range g.Steps(ctx, l.state(), steps) {
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
		const best = 100 * samplesOfStep * each * 4 / 13
		if took := computing(r, 100); took < best || float64(best)/float64(took) < 0.95 {
			t.Errorf("100 steps computed for %v; the sum of speeds allows %v", took, best)
		}
		if n := len(r.sink.of("shares")); n < 2 {
			t.Errorf("%d shares events", n)
		}
	})
}

// computing returns the time that the first steps took without their calls: the sum, over the
// steps, of the compute time of the member that computed the longest.
func computing(r *run, steps int64) time.Duration {
	longest := make(map[int64]float64)
	for _, e := range r.sink.of("step") {
		longest[e.Step] = max(longest[e.Step], e.Body.(event.Step).ComputeMS)
	}
	sum := 0.0
	for n := int64(1); n <= steps; n++ {
		sum += longest[n]
	}
	return time.Duration(sum * float64(time.Millisecond))
}
