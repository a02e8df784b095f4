package trainer

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
)

// In exact mode, too, a bucket is reduced while the model computes other buckets.
func TestExactReductionOverlaps(t *testing.T) {
	var trace []string
	params := paramsOf(2, 2, 2)
	r := alone(t, traced{params: params, trace: &trace}, func(c *Config) { c.Gradients.Exact = true })
	reduction := newReduction(r.reducer.layout, func(b bucket) pending {
		trace = append(trace, "reduce "+params[b.firstParam].Name)
		return waiter(func(context.Context) error { return nil })
	})
	if err := r.own.complete(t.Context(), r.model, r.plan.step(1), queueOf(r, 1, 3), reduction, allowed); err != nil {
		t.Fatal(err)
	}
	want := []string{"backward c", "backward b", "backward a",
		"backward c", "reduce c", "backward b", "reduce b", "backward a", "reduce a"}
	if !slices.Equal(trace, want) {
		t.Errorf("trace %v, want %v", trace, want)
	}
}

// careless is a model that declares some gradients complete twice or too early, and others never.
type careless struct {
	traced
	tells []int
}

func (c careless) Accumulate(grad [][]float32, samples []int, done func(int)) (float64, error) {
	loss, err := c.traced.Accumulate(grad, samples, func(int) {})
	for _, i := range c.tells {
		done(i)
	}
	return loss, err
}

// Wrong declarations of a model do not change the sums in exact mode.
func TestExactSumsTakeEachGradientOnce(t *testing.T) {
	var trace []string
	sums := func(tells ...int) []int32 {
		m := careless{traced{params: paramsOf(3, 1, 2), trace: &trace}, tells}
		r := alone(t, m, func(c *Config) { c.Gradients.Exact = true })
		for k := range 3 {
			if err := r.own.add(r.model, r.plan.step(1), []int{k}, ignore); err != nil {
				t.Fatal(err)
			}
		}
		return r.own.sums.(*exactAccumulator).own
	}
	want := sums(2, 1, 0)
	for _, tells := range [][]int{{0, 1, 2}, {2, 2, 0, 0}, {}, {3, 1, -1}} {
		if got := sums(tells...); !slices.Equal(got, want) || got[0] == 0 {
			t.Errorf("declared %v: sums %v, want %v", tells, got, want)
		}
	}
}

// On one processor, a call that has started sends as much as it can before the model continues to
// compute.
func TestCallsGoFirst(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var begun atomic.Int32
	finished := make(chan struct{})
	l := newLayout(paramsOf(1, 1, 1, 1), 1)
	r := newReduction(l, func(b bucket) pending {
		go func() {
			begun.Add(1)
			finished <- struct{}{}
		}()
		return waiter(func(context.Context) error { <-finished; return nil })
	})
	first := 0
	for i := range slices.Backward(l.params) {
		r.ready(i, 0)
		if int(begun.Load()) == len(r.started) {
			first++
		}
	}
	if err := r.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first < len(l.params)/2 { // for fairness, the scheduler sometimes resumes the model before a call
		t.Errorf("%d of %d calls had begun before the model went on", first, len(l.params))
	}
}
