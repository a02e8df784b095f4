package trainer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/loadbal"
	"github.com/elrun/elrun/trainer/optim"
)

// pipeline has the parameters and the optimizer's memory. They may be updated with a step that is
// not committed yet, one by one and large ones in parts, as their sums come in, so that the next
// step can begin. The step may still fail, so what a parameter was is kept until the commit.
type pipeline struct {
	params [][]float32   // the model's memory
	slots  [][][]float32 // by parameter: what the optimizer keeps

	was  [][][]float32 // by parameter: what it and its slots were
	from []int         // by parameter: from there on it was updated with a step that is not committed
}

// updateBlock is how many elements are updated at a time, so that they stay in the cache.
const updateBlock = 8 << 10

// newPipeline returns a pipeline of parameters and fresh memory of their optimizer.
func newPipeline(params []Param, o optim.Optimizer) *pipeline {
	p := &pipeline{}
	for _, param := range params {
		p.params = append(p.params, param.Data)
		p.slots = append(p.slots, optim.NewState(o, len(param.Data)))
	}
	return p
}

// reserve takes the memory that the first step needs which is begun in the one before.
func (p *pipeline) reserve() {
	if p.was != nil {
		return
	}
	p.from = make([]int, len(p.params))
	for i, param := range p.params {
		p.from[i] = len(param)
		old := [][]float32{make([]float32, len(param))}
		for range p.slots[i] {
			old = append(old, make([]float32, len(param)))
		}
		p.was = append(p.was, old)
	}
}

// rule is that of an optimizer for one step.
type rule func(param, mean []float32, state [][]float32)

// update makes the sum of parameter i over all samples of a step their mean, from an element
// on, and updates as much of the parameter with it, as commit would. It goes through all of
// them in blocks, and ends with ErrNotFinite before one whose sum is not finite.
func (p *pipeline) update(i, from int, sum []float32, samples int64, apply rule) error {
	state := make([][]float32, len(p.slots[i]))
	for end := p.from[i]; end > from; end = p.from[i] {
		at := max(from, end-updateBlock)
		if !allFinite(sum[at:end]) {
			return ErrNotFinite
		}
		makeMean(sum[at:end], samples)
		p.move(i, at, sum[at:end], apply, state)
	}
	return nil
}

// move updates parameter i from an element on, up to where it was updated already, and keeps what
// it was. state is room for a part of each slot.
func (p *pipeline) move(i, at int, mean []float32, apply rule, state [][]float32) {
	end := p.from[i]
	param := p.params[i][at:end]
	copy(p.was[i][0][at:end], param)
	for k, slot := range p.slots[i] {
		state[k] = slot[at:end]
		copy(p.was[i][1+k][at:end], state[k])
	}
	apply(param, mean, state)
	p.from[i] = at
}

// advance updates all parameters with a mean gradient that is there.
func (p *pipeline) advance(mean [][]float32, apply rule) {
	for i := range p.params {
		state := make([][]float32, len(p.slots[i]))
		for p.from[i] > 0 {
			at := max(0, p.from[i]-updateBlock)
			p.move(i, at, mean[i][at:p.from[i]], apply, state)
		}
	}
}

// left returns how many elements of parameter i, from the first on, are as the last committed
// step has left them. The others were updated with the step after it.
func (p *pipeline) left(i int) int {
	if p.from == nil {
		return len(p.params[i])
	}
	return p.from[i]
}

// rest returns what is left of parameter i, and its slots.
func (p *pipeline) rest(i int) (param []float32, slots [][]float32) {
	n := p.left(i)
	for _, slot := range p.slots[i] {
		slots = append(slots, slot[:n])
	}
	return p.params[i][:n], slots
}

// committed returns parameter i and its slots as they are after the last committed step.
func (p *pipeline) committed(i int) (param []float32, slots [][]float32) {
	n := p.left(i)
	if n == len(p.params[i]) {
		return p.params[i], p.slots[i]
	}
	was := p.was[i]
	copy(was[0][:n], p.params[i])
	for k, slot := range p.slots[i] {
		copy(was[1+k][:n], slot)
	}
	return was[0], was[1:]
}

// vectors returns the parameters and then the optimizer's memory, as they are after the last
// committed step.
func (p *pipeline) vectors() [][]float32 {
	var params, memory [][]float32
	for i := range p.params {
		param, slots := p.committed(i)
		params, memory = append(params, param), append(memory, slots...)
	}
	return append(params, memory...)
}

// settle takes note that a step is committed.
func (p *pipeline) settle() {
	for i := range p.from {
		p.from[i] = len(p.params[i])
	}
}

// takeBack makes the parameters again what they were, unless the step was committed.
func (p *pipeline) takeBack() {
	for i, from := range p.from {
		if from == len(p.params[i]) {
			continue
		}
		copy(p.params[i][from:], p.was[i][0][from:])
		for k, slot := range p.slots[i] {
			copy(slot[from:], p.was[i][1+k][from:])
		}
	}
	p.settle()
}

// scratch is a sink for gradients that nobody reads, while nothing is updated.
func (p *pipeline) scratch() sink {
	grad := make([][]float32, len(p.was))
	for i, was := range p.was {
		grad[i] = was[0]
	}
	return sink{grad, func(int, int, int) {}, func() error { return nil }}
}

// errAnother is why a call is of no use that began before the share was known.
var errAnother = errors.New("the share of this peer has become another one")

// await finishes a step whose share is computed. Where there is a network to wait for, the
// next step begins meanwhile.
func (r *runner) await(ctx context.Context, s *elastic.Session, t *try) error {
	mine := r.declare(r.contributed())
	if !r.links.between() {
		return r.finishStep(s, t, r.exchangeAfter(ctx, s, t, mine))
	}
	var got exchanged
	var exchange sync.WaitGroup
	exchange.Go(func() { got = r.exchangeAfter(ctx, s, t, mine) })
	defer exchange.Wait() // also if the model panics
	finish := sync.OnceValue(func() error {
		exchange.Wait()
		return r.finishStep(s, t, got)
	})
	if r.overlaps && t.plan.step < r.plan.steps && !r.decisions.due(t.plan.step) {
		r.lookAhead(ctx, s, t, finish)
	}
	return finish()
}

// lookAhead makes the first call of the step after t.
func (r *runner) lookAhead(ctx context.Context, s *elastic.Session, t *try, finish func() error) {
	p, next := r.state.pipeline, r.plan.step(t.plan.step+1)
	missing := r.sharesOf(next)[s.Rank].Without(loadbal.NewSet(next.microbatches))
	of, mean := r.state.due(t.plan.step)
	apply, err := r.state.rule(of)
	if len(missing) == 0 || err != nil {
		return
	}
	p.reserve()
	f := forward{pipeline: p, sums: t.sums, values: mean, samples: int64(t.plan.end - t.plan.first), broken: s.Comm.Err, apply: apply}
	l := newCall(r.model, next, callsOf(missing, r.together())[0], r.open.sums)
	l.broken = s.Comm.Err
	if r.cfg.Delay {
		p.advance(mean, apply)
	} else {
		l.coming = func(i, from int) error { return f.need(ctx, i, from) }
	}
	l.opening = func() {
		t.following = time.Since(l.begun) - f.waited
		if err := r.follow(ctx, s, t, l, finish); err != nil {
			l.useless, l.sink = err, p.scratch()
		}
		l.begun = time.Now()
	}
	if err := l.run(r.model); l.useless == nil {
		r.next.failed = r.open.take(l, err)
	}
}

// follow finishes the open step, begins the next one, and makes a call that has begun before
// that the first of it; the error says why it cannot be.
func (r *runner) follow(ctx context.Context, s *elastic.Session, t *try, l *call, finish func() error) error {
	if err := finish(); err != nil {
		return err
	}
	if l.useless != nil {
		return l.useless
	}
	r.next = r.begin(ctx, s)
	calls := r.open.calls(r.shares[s.Rank], r.together())
	if r.next.failed != nil || r.next.plan.step != l.step || len(calls) == 0 || !slices.Equal(calls[0], l.micros) {
		return errAnother
	}
	l.sink = r.open.sums.collect(len(l.groups), r.next.readyAt(len(calls) == 1))
	r.next.claimed = t.following
	r.open.compute += t.following
	return nil
}

// forward is a forward pass under way, while sums of the step before it come in.
type forward struct {
	*pipeline
	sums    *reduction
	values  [][]float32 // of the sums, by parameter
	samples int64       // over which they are
	apply   rule
	broken  func() error  // why no more sums will come
	waited  time.Duration // for parameters
}

// need waits for parameter i from an element on. While it waits for a sum, it updates parameters with those that
// are there: they will be asked for, too.
func (f *forward) need(ctx context.Context, i, from int) error {
	begun := time.Now()
	defer func() { f.waited += time.Since(begun) }()
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
			from := max(0, end-updateBlock)
			return f.sums.has(i, from, end) && f.update(i, from, f.values[i], f.samples, f.apply) == nil
		}
	}
	return false
}

// sharesOf returns the ranks' parts of a step, if they stay what they are.
func (r *runner) sharesOf(p stepPlan) []loadbal.Set {
	shares, _ := loadbal.AssignTo(make([]loadbal.Set, len(r.shares)), r.balance.ahead(), p.microbatches)
	return shares
}
