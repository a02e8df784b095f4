package trainer

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/optim"
)

// traced is a model that notes what it does. Its gradient counts samples.
type traced struct {
	params []Param
	trace  *[]string
	loss   float64
	fail   error
}

func (m traced) Params() []Param { return m.params }

func (m traced) Accumulate(grad [][]float32, samples []int, done func(int)) (float64, error) {
	for i := len(grad) - 1; i >= 0; i-- {
		for j := range grad[i] {
			grad[i][j] += float32(len(samples))
		}
		*m.trace = append(*m.trace, "backward "+m.params[i].Name)
		done(i)
	}
	return m.loss, m.fail
}

// alone is a runner without a group, of 4 microbatches a step.
func alone(t *testing.T, m Accumulator, change func(c *Config)) *runner {
	return aloneWith(t, ModelOf(m), change)
}

// aloneWith is alone with any model.
func aloneWith(t *testing.T, m Model, change func(c *Config)) *runner {
	cfg := Config{Samples: 40, GlobalBatch: 20, Microbatch: 5, Passes: 3, BucketBytes: 8,
		Optimizer: optim.SGD{Momentum: 0.5}, Schedule: optim.Constant(0.5)}
	if change != nil {
		change(&cfg)
	}
	r, err := newRunner(nil, m, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func always(err error) func() error { return func() error { return err } }

// Buckets start within the last backward pass, not in those before and not after.
func TestReductionOverlapsTheLastBackwardPass(t *testing.T) {
	var trace []string
	params := paramsOf(2, 2, 2)
	r := alone(t, traced{params: params, trace: &trace}, nil)
	reduction := func() *reduction {
		return newReduction(r.layout, func(b bucket) pending {
			trace = append(trace, "reduce "+params[b.firstParam].Name)
			return waiter(func(context.Context) error { return nil })
		})
	}
	p := r.plan.step(1)
	if err := r.open.complete(t.Context(), r.model, p, r.open.calls(microbatches(4, 1, 3), 1), reduction(), always(nil)); err != nil {
		t.Fatal(err)
	}
	want := []string{"backward c", "backward b", "backward a",
		"backward c", "reduce c", "backward b", "reduce b", "backward a", "reduce a"}
	if !slices.Equal(trace, want) || r.open.samples != 10 || !slices.Equal(r.open.held, microbatches(4, 1, 3)) {
		t.Errorf("trace %v, want %v; contribution %+v", trace, want, r.open)
	}
	// What is held already is reduced without the model.
	trace = nil
	if err := r.open.complete(t.Context(), r.model, p, r.open.calls(microbatches(4, 1, 3), 1), reduction(), always(nil)); err != nil {
		t.Fatal(err)
	}
	if want := []string{"reduce c", "reduce b", "reduce a"}; !slices.Equal(trace, want) {
		t.Errorf("trace with all microbatches held %v, want %v", trace, want)
	}
	// With more to do only that is computed.
	trace = nil
	if err := r.open.complete(t.Context(), r.model, p, r.open.calls(microbatches(4, 0, 1, 3), 1), reduction(), always(nil)); err != nil {
		t.Fatal(err)
	}
	if len(trace) != 6 || r.open.samples != 15 || r.open.recomputed != 0 || r.open.held.Has(2) {
		t.Errorf("trace of one more microbatch %v, contribution %+v", trace, r.open)
	}
}

// A session that is revoked is noticed between two microbatches; what is complete stays.
func TestRevocationInterruptsBetweenMicrobatches(t *testing.T) {
	var trace []string
	r := alone(t, traced{params: paramsOf(1), trace: &trace}, nil)
	idle := newReduction(r.layout, func(bucket) pending { return waiter(func(context.Context) error { return nil }) })
	revoked := errors.New("revoked")
	broken := func() error {
		if len(trace) == 2 {
			return revoked
		}
		return nil
	}
	err := r.open.complete(t.Context(), r.model, r.plan.step(1), r.open.calls(microbatches(4, 0, 1, 2, 3), 1), idle, broken)
	if !errors.Is(err, revoked) || r.open.samples != 10 || r.open.held.Len() != 2 || len(idle.started) != 0 {
		t.Errorf("error %v, contribution %+v", err, r.open)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(revoked)
	if err := r.open.complete(ctx, r.model, r.plan.step(1), r.open.calls(microbatches(4, 0, 1, 2, 3), 1), idle, always(nil)); !errors.Is(err, revoked) {
		t.Errorf("error %v of an ended context", err)
	}
}

// Thrown away and computed again is counted; another attempt, or another step, is not.
func TestRecomputedCounts(t *testing.T) {
	var trace []string
	r := alone(t, traced{params: paramsOf(1), trace: &trace, loss: 2}, nil)
	add := func(ks ...int) {
		for _, k := range ks {
			if err := r.open.add(r.model, r.plan.step(r.open.step), []int{k}, ignore); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(0, 1)
	r.open.reset(1, 0, r.state.scale, 4)
	if r.open.samples != 0 || r.open.held.Len() != 0 || r.open.loss != (lossSum{}) || r.open.sums.(*plain).own.flat[0] != 0 {
		t.Errorf("after a reset the contribution has %+v", r.open)
	}
	add(1, 2)
	if r.open.recomputed != 1 || r.open.loss.float() != 4 {
		t.Errorf("recomputed %d, want 1; loss %v", r.open.recomputed, r.open.loss.float())
	}
	r.open.reset(1, 1, r.state.scale, 4)
	add(0, 1, 2)
	if r.open.recomputed != 0 {
		t.Errorf("recomputed %d in the second attempt", r.open.recomputed)
	}
	r.open.reset(2, 0, r.state.scale, 4)
	add(0)
	if r.open.recomputed != 0 || r.open.step != 2 {
		t.Errorf("recomputed %d in the next step", r.open.recomputed)
	}
}

func TestFaultsOfAContribution(t *testing.T) {
	var trace []string
	for _, exactly := range []bool{false, true} {
		m := traced{params: paramsOf(1, 2), trace: &trace, loss: math.Inf(1)}
		r := alone(t, m, func(c *Config) { c.Exact = exactly })
		if err := r.open.add(r.model, r.plan.step(1), []int{0}, ignore); err != nil {
			t.Fatal(err)
		}
		if f := r.open.fault(); f != faultLoss || r.open.loss != (lossSum{}) {
			t.Errorf("exact %t: fault %d of an infinite loss, sum %v", exactly, f, r.open.loss)
		}
	}
	m := traced{params: paramsOf(1), trace: &trace, fail: errors.New("out of paper")}
	r := alone(t, m, nil)
	if err := r.open.add(r.model, r.plan.step(1), []int{3}, ignore); !errors.Is(err, m.fail) || r.open.held.Has(3) {
		t.Errorf("error %v, held %v", err, r.open.held.Ranges())
	}
}

// What a microbatch adds in exact mode does not depend on what was there before, nor
// on which of the two buffers it is computed in.
func TestExactContributionsAddUp(t *testing.T) {
	var trace []string
	m := traced{params: paramsOf(3, 1, 20), trace: &trace}
	sum := func(parts ...[]int) []int32 {
		total := make([]int32, 24)
		for _, part := range parts {
			r := alone(t, m, func(c *Config) { c.Exact = true })
			for _, k := range part {
				r.state.grads.swap()
				for j := range r.state.grads.staging.flat {
					r.state.grads.staging.flat[j] = 99
				}
				if err := r.open.add(r.model, r.plan.step(1), []int{k}, ignore); err != nil {
					t.Fatal(err)
				}
			}
			for j, v := range r.open.sums.(*quantised).own {
				total[j] += v
			}
		}
		return total
	}
	if a, b := sum([]int{0, 1, 2, 3}), sum([]int{3}, []int{2, 0}, []int{1}); !slices.Equal(a, b) || a[0] == 0 {
		t.Errorf("one peer %v, three peers %v", a, b)
	}
}

// Sums that do not fit their scale give the scale for another attempt.
func TestExactMeanNeedsAnotherAttempt(t *testing.T) {
	var trace []string
	m := traced{params: paramsOf(2), trace: &trace}
	r := alone(t, m, func(c *Config) { c.Exact = true })
	q := r.open.sums.(*quantised)
	q.step = []exact.Peak{200}
	next, fits := q.mean(20, nil)
	if fits || next.Equal(r.state.scale) || !next.Fits(q.step) {
		t.Errorf("fits %t, next scale %v", fits, next.Exponents())
	}
}

// ramp is a model whose gradient depends on sample and element.
type ramp struct{ params []Param }

func (m ramp) Params() []Param { return m.params }

func (m ramp) Accumulate(grad [][]float32, samples []int, done func(int)) (float64, error) {
	for i, g := range grad {
		for j := range g {
			for _, s := range samples {
				g[j] += float32(s*7+i*3+j) / 16
			}
		}
		done(i)
	}
	return float64(len(samples)), nil
}

// newRamp is a runner without a group; in exact mode or not.
func newRamp(t *testing.T, exactly bool) *runner {
	return alone(t, ramp{paramsOf(2, 3, 17)}, func(c *Config) {
		c.Exact, c.Optimizer, c.Clip = exactly, optim.Adam{}, 3
	})
}

// solo commits the next step of a runner as a group of one does.
func (r *runner) solo(t *testing.T) {
	t.Helper()
	p := r.plan.step(r.state.committed() + 1)
	for k := range p.microbatches {
		if err := r.open.add(r.model, p, []int{k}, ignore); err != nil {
			t.Fatal(err)
		}
	}
	switch sums := r.open.sums.(type) {
	case *plain:
		copy(r.state.grads.staging.flat, sums.own.flat)
	case *quantised:
		copy(sums.all, sums.own)
		copy(sums.step, sums.peaks)
	}
	next, fits := r.open.sums.mean(int64(r.open.samples), r.state.pipeline.left)
	if !fits {
		r.open.reset(p.step, r.open.attempt+1, next, p.microbatches)
		r.solo(t)
		return
	}
	o := outcome{Step: p.step, Attempt: r.open.attempt, Epoch: 1, Peers: 1, Samples: int64(r.open.samples), Loss: r.open.loss,
		Shares: []share{{"me", r.open.held.Ranges()}}}
	if err := r.state.commit(o, next); err != nil {
		t.Fatal(err)
	}
}

// A contribution to a step that is committed meanwhile is no longer needed; it did
// count, and its work is reported.
func TestApplyEndsTheContribution(t *testing.T) {
	leader, r := newRamp(t, false), newRamp(t, false)
	leader.solo(t)
	if err := r.open.add(r.model, r.plan.step(1), []int{2}, ignore); err != nil {
		t.Fatal(err)
	}
	r.open.recomputed = 1
	if err := r.state.Apply(bytes.NewReader(updated(t, leader.state))); err != nil {
		t.Fatal(err)
	}
	if r.open.step != 2 || r.open.held.Len() != 0 || r.reporter.own.step != 1 || r.reporter.own.recomputed != 1 || r.state.last.Step != 1 {
		t.Errorf("contribution to step %d of %v, own work %+v", r.open.step, r.open.held.Ranges(), r.reporter.own)
	}
}

// What was computed from the state that is replaced goes with it.
func TestLoadEndsTheContribution(t *testing.T) {
	leader, r := newRamp(t, true), newRamp(t, true)
	start := saved(t, leader.state)
	leader.solo(t)
	for step, state := range [][]byte{start, saved(t, leader.state)} {
		if err := r.open.add(r.model, r.plan.step(1), []int{2}, ignore); err != nil {
			t.Fatal(err)
		}
		if err := r.state.Load(bytes.NewReader(state)); err != nil {
			t.Fatal(err)
		}
		if r.open.step != int64(step)+1 || r.open.held.Len() != 0 || r.open.samples != 0 || !r.open.scale.Equal(r.state.scale) {
			t.Errorf("step %d: contribution to step %d of %v", step, r.open.step, r.open.held.Ranges())
		}
	}
}
