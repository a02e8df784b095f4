package trainer

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/internal/ledger"
	"github.com/elrun/elrun/trainer/internal/steal"
	"github.com/elrun/elrun/trainer/optim"
)

// traced is a model that records its calls. Its gradient is the number of samples.
type traced struct {
	params []Param
	trace  *[]string
	loss   float64
	fail   error
}

func (t traced) Params() []Param { return t.params }

func (t traced) Accumulate(grad [][]float32, samples []int, done func(int)) (float64, error) {
	for i := len(grad) - 1; i >= 0; i-- {
		for j := range grad[i] {
			grad[i][j] += float32(len(samples))
		}
		*t.trace = append(*t.trace, "backward "+t.params[i].Name)
		done(i)
	}
	return t.loss, t.fail
}

// follower is an observer of a state that only advances the open step when the state advances.
type follower struct{ step *openStep }

func (f follower) superseded(int64, bool) {}

func (f follower) advanced(_, o outcome) { f.step.advance(o) }

// alone returns an open step with 4 microbatches, without a group.
func alone(t *testing.T, m Accumulator, change func(c *Config)) *openStep {
	return aloneWith(t, ModelOf(m), change)
}

// aloneWith is like alone, with any model.
func aloneWith(t *testing.T, m Model, change func(c *Config)) *openStep {
	cfg := Config{Samples: 40, GlobalBatch: 20, Microbatch: 5, Passes: 3, Gradients: Gradients{BucketBytes: 8},
		Optimizer: optim.SGD{Momentum: 0.5}, Schedule: optim.Constant(0.5)}
	if change != nil {
		change(&cfg)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	o, err := newOpenStep(cfg, m)
	if err != nil {
		t.Fatal(err)
	}
	o.balance.emit = func(uint64, int64, event.Body) {}
	o.reducer.poll = func() {}
	o.state.observer = follower{o}
	o.reopen()
	return o
}

// queueOf returns a queue of the microbatches of a step of 4 that the contribution lacks, one in each call.
func queueOf(o *openStep, micros ...int) *steal.Queue {
	q := new(steal.Queue)
	q.Open(nil, o.own.calls(microbatches(4, micros...), 1), 1)
	return q
}

// allowed allows all microbatches.
func allowed([]int) error { return nil }

func always(err error) func() error { return func() error { return err } }

// The reduction of buckets starts within the last backward pass, neither earlier nor after it.
func TestReductionOverlapsTheLastBackwardPass(t *testing.T) {
	var trace []string
	params := paramsOf(2, 2, 2)
	r := alone(t, traced{params: params, trace: &trace}, nil)
	reduction := func() *reduction {
		return newReduction(r.reducer.layout, func(b bucket) pending {
			trace = append(trace, "reduce "+params[b.firstParam].Name)
			return waiter(func(context.Context) error { return nil })
		})
	}
	p := r.plan.step(1)
	if err := r.own.complete(t.Context(), r.model, p, queueOf(r, 1, 3), reduction(), allowed); err != nil {
		t.Fatal(err)
	}
	want := []string{"backward c", "backward b", "backward a",
		"backward c", "reduce c", "backward b", "reduce b", "backward a", "reduce a"}
	if !slices.Equal(trace, want) || r.own.samples != 10 || !slices.Equal(r.own.held, microbatches(4, 1, 3)) {
		t.Errorf("trace %v, want %v; contribution %+v", trace, want, r.own)
	}
	// Microbatches that are computed already are reduced without a call of the model.
	trace = nil
	if err := r.own.complete(t.Context(), r.model, p, queueOf(r, 1, 3), reduction(), allowed); err != nil {
		t.Fatal(err)
	}
	if want := []string{"reduce c", "reduce b", "reduce a"}; !slices.Equal(trace, want) {
		t.Errorf("trace with all microbatches held %v, want %v", trace, want)
	}
	// With a larger share only the missing microbatches are computed.
	trace = nil
	if err := r.own.complete(t.Context(), r.model, p, queueOf(r, 0, 1, 3), reduction(), allowed); err != nil {
		t.Fatal(err)
	}
	if len(trace) != 6 || r.own.samples != 15 || r.own.recomputed != 0 || r.own.held.Has(2) {
		t.Errorf("trace of one more microbatch %v, contribution %+v", trace, r.own)
	}
}

// A peer notices between two microbatches that the session was revoked. It keeps complete microbatches.
func TestRevocationInterruptsBetweenMicrobatches(t *testing.T) {
	var trace []string
	r := alone(t, traced{params: paramsOf(1), trace: &trace}, nil)
	idle := newReduction(r.reducer.layout, func(bucket) pending { return waiter(func(context.Context) error { return nil }) })
	revoked := errors.New("revoked")
	broken := func([]int) error {
		if len(trace) == 2 {
			return revoked
		}
		return nil
	}
	err := r.own.complete(t.Context(), r.model, r.plan.step(1), queueOf(r, 0, 1, 2, 3), idle, broken)
	if !errors.Is(err, revoked) || r.own.samples != 10 || r.own.held.Len() != 2 || len(idle.started) != 0 {
		t.Errorf("error %v, contribution %+v", err, r.own)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(revoked)
	if err := r.own.complete(ctx, r.model, r.plan.step(1), queueOf(r, 0, 1, 2, 3), idle, allowed); !errors.Is(err, revoked) {
		t.Errorf("error %v of an ended context", err)
	}
}

// Microbatches that are dropped and computed again count as recomputed. Microbatches of another attempt or another step do not.
func TestRecomputedCounts(t *testing.T) {
	var trace []string
	r := alone(t, traced{params: paramsOf(1), trace: &trace, loss: 2}, nil)
	add := func(ks ...int) {
		for _, k := range ks {
			if err := r.own.add(r.model, r.plan.step(r.own.step), []int{k}, ignore); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(0, 1)
	r.own.reset(1, 0, r.state.scale, 4)
	if r.own.samples != 0 || r.own.held.Len() != 0 || r.own.loss != (ledger.Sum{}) || r.own.sums.(*floatAccumulator).own.flat[0] != 0 {
		t.Errorf("after a reset the contribution has %+v", r.own)
	}
	add(1, 2)
	if r.own.recomputed != 1 || r.own.loss.Float() != 4 {
		t.Errorf("recomputed %d, want 1; loss %v", r.own.recomputed, r.own.loss.Float())
	}
	r.own.reset(1, 1, r.state.scale, 4)
	add(0, 1, 2)
	if r.own.recomputed != 0 {
		t.Errorf("recomputed %d in the second attempt", r.own.recomputed)
	}
	r.own.reset(2, 0, r.state.scale, 4)
	add(0)
	if r.own.recomputed != 0 || r.own.step != 2 {
		t.Errorf("recomputed %d in the next step", r.own.recomputed)
	}
}

func TestFaultsOfAContribution(t *testing.T) {
	var trace []string
	for _, exactly := range []bool{false, true} {
		m := traced{params: paramsOf(1, 2), trace: &trace, loss: math.Inf(1)}
		r := alone(t, m, func(c *Config) { c.Gradients.Exact = exactly })
		if err := r.own.add(r.model, r.plan.step(1), []int{0}, ignore); err != nil {
			t.Fatal(err)
		}
		if f := r.own.fault(); f != faultLoss || r.own.loss != (ledger.Sum{}) {
			t.Errorf("exact %t: fault %d of an infinite loss, sum %v", exactly, f, r.own.loss)
		}
	}
	m := traced{params: paramsOf(1), trace: &trace, fail: errors.New("out of paper")}
	r := alone(t, m, nil)
	if err := r.own.add(r.model, r.plan.step(1), []int{3}, ignore); !errors.Is(err, m.fail) || r.own.held.Has(3) {
		t.Errorf("error %v, held %v", err, r.own.held.Ranges())
	}
}

// In exact mode the contribution of a microbatch does not depend on the previous contents of the buffer, or on which of the two
// buffers is used.
func TestExactContributionsAddUp(t *testing.T) {
	var trace []string
	m := traced{params: paramsOf(3, 1, 20), trace: &trace}
	sum := func(parts ...[]int) []int32 {
		total := make([]int32, 24)
		for _, part := range parts {
			r := alone(t, m, func(c *Config) { c.Gradients.Exact = true })
			for _, k := range part {
				r.state.grads.swap()
				for j := range r.state.grads.staging.flat {
					r.state.grads.staging.flat[j] = 99
				}
				if err := r.own.add(r.model, r.plan.step(1), []int{k}, ignore); err != nil {
					t.Fatal(err)
				}
			}
			for j, v := range r.own.sums.(*exactAccumulator).own {
				total[j] += v
			}
		}
		return total
	}
	if a, b := sum([]int{0, 1, 2, 3}), sum([]int{3}, []int{2, 0}, []int{1}); !slices.Equal(a, b) || a[0] == 0 {
		t.Errorf("one peer %v, three peers %v", a, b)
	}
}

// Sums that do not fit their scale lead to another attempt with another scale.
func TestExactMeanNeedsAnotherAttempt(t *testing.T) {
	var trace []string
	m := traced{params: paramsOf(2), trace: &trace}
	r := alone(t, m, func(c *Config) { c.Gradients.Exact = true })
	q := r.own.sums.(*exactAccumulator)
	q.step = []exact.Peak{200}
	next, fits := q.mean(20, nil)
	if fits || next.Equal(r.state.scale) || !next.Fits(q.step) {
		t.Errorf("fits %t, next scale %v", fits, next.Exponents())
	}
}
