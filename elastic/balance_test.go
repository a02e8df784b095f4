package elastic_test

import (
	"context"
	"math/rand/v2"
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

// Two members whose steps take 50 to 100 ms, whatever their shares, have about equal shares in nearly
// all steps.
func TestSharesOfAFixedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const steps, samples = 1000, 4096
		few := make([]int, 2) // by rank, number of steps with less than three quarters of an equal share
		r := startLoops(t, 2, 1, func(ctx context.Context, g *elastic.Group, _ *ledger) error {
			step, w := int64(0), []float64{0}
			for t := range g.Steps(ctx, elastic.Vectors(&step, w), steps) {
				rnd := rand.New(rand.NewPCG(uint64(step), uint64(t.Rank)))
				lo, hi := t.Part(samples)
				if (hi-lo)*8 < samples*3 {
					few[t.Rank]++
				}
				wait(50*time.Millisecond + time.Duration(rnd.Int64N(int64(50*time.Millisecond))))
				if err := collective.AllReduce(ctx, t.Comm, w, []float64{1}, collective.Sum[float64]); err == nil {
					step++
				}
			}
			return g.Err()
		})
		r.finish(t, 0, 1)
		if few[0]+few[1] > steps/20 {
			t.Errorf("in %d of %d steps a member had less than three quarters of an equal share", few[0]+few[1], steps)
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
