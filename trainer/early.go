package trainer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/loadbal"
)

// early lets the model begin the next step while the sums of the open one are still on
// their way: parameters are updated one by one, large ones in parts, as their sums come in,
// and the forward pass of the next share's first call, for whose gradients there is no place
// yet, follows them. The step may still fail, so what a parameter was is kept until the
// commit.
type early struct {
	model  Staged // nil: each step waits for the one before
	params [][]float32
	slots  [][][]float32

	was  [][][]float32 // by parameter: what it and its slots were
	from []int         // by parameter: from there on it was updated with a step that is not committed

	samples []int         // of the forward pass that the model has made; nil if it is of no use
	took    time.Duration // computing it, in the open step
	claimed time.Duration // the same of a pass that the open step has made use of
}

// earlyBlock is how many elements are updated at a time, so that they stay in the cache.
const earlyBlock = 8 << 10

// newEarly returns an early for a model, which does nothing if that cannot begin a step, or
// if a part of the sums does not tell what becomes of a parameter: in exact mode all of
// them together tell whether the step counts, and a limit is one for their norm.
func newEarly(r *runner) *early {
	e := &early{params: r.params, slots: r.slots}
	if !r.cfg.Exact && r.cfg.Clip == 0 {
		e.model, _ = r.model.(Staged)
	}
	return e
}

// reserve takes the memory that the first step needs which is begun early.
func (e *early) reserve() {
	if e.was != nil {
		return
	}
	e.from = make([]int, len(e.params))
	for i, p := range e.params {
		e.from[i] = len(p)
		old := [][]float32{make([]float32, len(p))}
		for range e.slots[i] {
			old = append(old, make([]float32, len(p)))
		}
		e.was = append(e.was, old)
	}
}

// rule is that of an optimizer for one step.
type rule func(param, mean []float32, state [][]float32)

// update makes the sum of parameter i over all samples of a step their mean, from an element
// on, and updates as much of the parameter with it, as commit would. It goes through all of
// them in blocks, and ends with ErrNotFinite before one whose sum is not finite.
func (e *early) update(i, from int, sum []float32, samples int64, apply rule) error {
	state := make([][]float32, len(e.slots[i]))
	for end := e.from[i]; end > from; end = e.from[i] {
		at := max(from, end-earlyBlock)
		if !allFinite(sum[at:end]) {
			return ErrNotFinite
		}
		param := e.params[i][at:end]
		copy(e.was[i][0][at:end], param)
		for k, slot := range e.slots[i] {
			state[k] = slot[at:end]
			copy(e.was[i][1+k][at:end], state[k])
		}
		makeMean(sum[at:end], samples)
		apply(param, sum[at:end], state)
		e.from[i] = at
	}
	return nil
}

// left returns how many elements of parameter i, from the first on, are as the last committed
// step has left them. The others were updated with the step after it.
func (e *early) left(i int) int {
	if e.from == nil {
		return len(e.params[i])
	}
	return e.from[i]
}

// rest returns what is left of parameter i, and its slots.
func (e *early) rest(i int) (param []float32, slots [][]float32) {
	n := e.left(i)
	for _, slot := range e.slots[i] {
		slots = append(slots, slot[:n])
	}
	return e.params[i][:n], slots
}

// committed returns parameter i and its slots as they are after the last committed step.
func (e *early) committed(i int) (param []float32, slots [][]float32) {
	n := e.left(i)
	if n == len(e.params[i]) {
		return e.params[i], e.slots[i]
	}
	was := e.was[i]
	copy(was[0][:n], e.params[i])
	for k, slot := range e.slots[i] {
		copy(was[1+k][:n], slot)
	}
	return was[0], was[1:]
}

// settle takes note that a step is committed.
func (e *early) settle() {
	for i := range e.from {
		e.from[i] = len(e.params[i])
	}
}

// takeBack makes the parameters again what they were, unless the step was committed.
func (e *early) takeBack() {
	for i, from := range e.from {
		if from == len(e.params[i]) {
			continue
		}
		copy(e.params[i][from:], e.was[i][0][from:])
		for k, slot := range e.slots[i] {
			copy(slot[from:], e.was[i][1+k][from:])
		}
		e.drop()
	}
	e.settle()
}

// drop forgets the forward pass.
func (e *early) drop() { e.samples = nil }

// resume returns the model to compute a step with. It goes on from the forward pass, if
// that is of the first samples that it is given.
func (e *early) resume(m Model) Model {
	e.claimed = 0
	if e.samples == nil {
		return m
	}
	return halfway{m, e}
}

// halfway is a model that has made a forward pass.
type halfway struct {
	Model
	early *early
}

// AccumulatePieces is that of Piecewise.
func (m halfway) AccumulatePieces(grad [][]float32, samples []int, ready func(i, from int)) (float64, error) {
	e := m.early
	fits := e.samples != nil && slices.Equal(e.samples, samples)
	e.drop() // either makes use of it or computes something else
	if !fits {
		return accumulate(m.Model, grad, samples, ready)
	}
	e.claimed = e.took
	return e.model.Backward(grad, ready)
}

// await waits until the sums and the tail of step p are there, and returns the tail's slots
// and how long it took. Where there is a network to wait for, the next step begins
// meanwhile.
func (r *runner) await(ctx context.Context, s *elastic.Session, p stepPlan, sums *reduction) (slots []slot, took time.Duration, err error) {
	mine := r.declare(r.contributed())
	r.early.took = 0
	exchange := func() {
		if err = sums.wait(ctx); err != nil {
			err = fmt.Errorf("step %d: %w", p.step, err)
			return
		}
		begun := time.Now()
		slots, err = r.exchange(ctx, s, mine)
		took = time.Since(begun)
	}
	if !r.links.between() {
		exchange()
		return slots, took, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		exchange()
	}()
	if r.early.model != nil && p.step < r.plan.steps {
		r.lookAhead(ctx, s, p, sums)
	}
	<-done
	return slots, took, err
}

// lookAhead makes the forward pass of the step after p. What goes wrong with it is no
// error: the step will see it.
func (r *runner) lookAhead(ctx context.Context, s *elastic.Session, p stepPlan, sums *reduction) {
	e, next := r.early, r.plan.step(p.step+1)
	missing := r.sharesOf(next)[s.Rank].Without(loadbal.NewSet(next.microbatches))
	rate, err := r.rate(p.step)
	if len(missing) == 0 || err != nil {
		return
	}
	e.reserve()
	e.drop()
	f := forward{early: e, sums: sums, values: r.bufs.staging.views, samples: int64(p.end - p.first), broken: s.Comm.Err,
		apply: func(param, mean []float32, state [][]float32) {
			r.cfg.Optimizer.Update(p.step, rate, param, mean, state)
		}}
	samples := slices.Concat(next.samplesOf(callsOf(missing, r.together())[0])...)
	begun := time.Now()
	err = e.model.Forward(samples, func(i, from int) error { return f.need(ctx, i, from) })
	e.took = time.Since(begun) - f.waited
	if err == nil {
		e.samples = samples
	}
}

// forward is a forward pass under way, while sums of the step before it come in.
type forward struct {
	*early
	sums    *reduction
	values  [][]float32 // of the sums, by parameter
	samples int64       // over which they are
	apply   rule
	broken  func() error  // why no more sums will come
	waited  time.Duration // for parameters
}

// need is that of Staged. While it waits for a sum, it updates parameters with those that
// are there: they will be asked for, too.
func (f *forward) need(ctx context.Context, i, from int) error {
	begun := time.Now()
	defer func() { f.waited += time.Since(begun) }()
	if i < 0 || i >= len(f.params) || from < 0 {
		return fmt.Errorf("parameter %d of %d, from element %d on", i, len(f.params), from)
	}
	if err := f.broken(); err != nil {
		return err
	}
	for !f.sums.has(i, from, f.left(i)) && f.another() {
		f.sums.yield()
	}
	if err := f.sums.waitFor(ctx, i, from, f.left(i)); err != nil {
		return err
	}
	return f.update(i, from, f.values[i], f.samples, f.apply)
}

// another updates some elements whose sums are there, and reports whether there were any. It
// looks at the last ones that are left, whose gradients most models complete first.
func (f *forward) another() bool {
	for i := range slices.Backward(f.params) {
		if end := f.left(i); end > 0 {
			from := max(0, end-earlyBlock)
			return f.sums.has(i, from, end) && f.update(i, from, f.values[i], f.samples, f.apply) == nil
		}
	}
	return false
}

// sharesOf returns the ranks' parts of a step, if they stay what they are.
func (r *runner) sharesOf(p stepPlan) []loadbal.Set {
	shares, _ := loadbal.AssignTo(make([]loadbal.Set, len(r.shares)), r.balance.wanted, p.microbatches)
	return shares
}
