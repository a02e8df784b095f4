package trainer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer/internal/ledger"
)

// Pipelining of steps: the next step begins while the sums of the open step are still being
// reduced. Parameters are updated as their sums arrive (pipeline). The first call of the next share
// waits for each parameter (Batch.Wait) and so follows the updates. The memory for its gradients is
// still in use by the open step. So the open step is finished when the call asks for this memory
// (Batch.Grad).

// overlaps reports whether a step may begin before the previous step is finished. Without a delay
// this needs a model that waits for its parameters, and updates that depend on the sums of one
// parameter only. Exact mode and clipping are excluded: in exact mode the peaks of all parameters
// decide whether the step is repeated, and a clip limit depends on the norm of all sums.
func overlaps(m Model, g Gradients) bool { return g.Delay || m.Waits && !g.Exact && g.Clip == 0 }

// forward is a forward pass under way, while sums of the previous step arrive.
type forward struct {
	*pipeline               // the parameters to update
	sums      *reduction    // reduction of the open step
	values    [][]float32   // reduced sums, by parameter
	samples   int64         // samples in the sums
	apply     rule          // the optimizer's update
	broken    func() error  // returns why no more sums will arrive
	waited    time.Duration // time spent waiting for parameters
}

// need returns when the elements [from:] of parameter i may be read. While it waits for a sum, it
// updates parameters whose sums have arrived, which the model will need next.
func (f *forward) need(ctx context.Context, i, from int) error {
	begun := time.Now()
	defer func() { f.waited += time.Since(begun) }()
	if err := f.broken(); err != nil {
		return err
	}
	// While the sum is in flight, update other parameters, which would otherwise be updated later.
	for !f.sums.has(i, from, f.left(i)) && f.another() {
		f.sums.yield()
	}
	if err := f.sums.waitFor(ctx, i, from, f.left(i)); err != nil {
		return err
	}
	return f.update(i, from, f.values[i], f.samples, f.apply)
}

// another updates one block whose sums have arrived, and reports whether there was one. It tries
// the end of the last parameter that is not fully updated, because most models complete the
// gradients there first.
func (f *forward) another() bool {
	for i := range slices.Backward(f.params) {
		if end := f.left(i); end > 0 {
			from := max(0, end-updateBlock)
			return f.sums.has(i, from, end) && f.update(i, from, f.values[i], f.samples, f.apply) == nil
		}
	}
	return false
}

// errAnother is the reason to drop a call that began before the share was decided, if the decided
// share differs from the expected share.
var errAnother = errors.New("the share of this peer has changed since the call began")

// lookAhead makes the first call of the step after step t, if that call may begin now. The
// call runs finish, which ends step t, before it computes gradients.
func (o *openStep) lookAhead(ctx context.Context, s *elastic.Session, t *try, finish func() error) {
	if !overlaps(o.model, o.cfg.Gradients) || t.plan.step >= o.plan.steps {
		return
	}
	p, next := o.state.pipeline, o.plan.step(t.plan.step+1)
	// A newly opened step holds no microbatches, so the whole expected share is missing.
	missing := o.balance.sharesAhead(next.microbatches)[s.Rank].Without(ledger.NewSet(next.microbatches))
	apply, mean, err := o.state.rules.due(t.plan.step, o.state.grads)
	if len(missing) == 0 || err != nil {
		return
	}
	p.reserve()
	f := forward{pipeline: p, sums: t.sums, values: mean, samples: int64(t.plan.end - t.plan.first), broken: s.Comm.Err, apply: apply}
	l := newCall(o.model, next, callsOf(missing, o.together())[0], o.own.sums)
	l.broken = s.Comm.Err
	// With a delay the gradient to apply is complete; without one the call waits for each sum.
	if o.cfg.Gradients.Delay {
		p.advance(mean, apply)
	} else {
		l.coming = func(i, from int) error { return f.need(ctx, i, from) }
	}
	// At the first gradient the open step is finished. If that fails, or the decided share differs
	// from the expected share, the call goes on with scratch memory, and its result is dropped.
	l.opening = func() {
		t.following = time.Since(l.begun) - f.waited
		if err := o.follow(ctx, s, t, l, finish); err != nil {
			l.useless, l.sink = err, p.scratch()
		}
		l.begun = time.Now()
	}
	if err := l.run(o.model); l.useless == nil {
		o.next.failed = o.own.take(l, err)
	}
}

// follow finishes the open step, begins the next step, and makes l, which has begun before, the
// first call of the next step. An error is the reason to discard the result of l.
func (o *openStep) follow(ctx context.Context, s *elastic.Session, t *try, l *call, finish func() error) error {
	if err := finish(); err != nil {
		return err
	}
	if l.useless != nil {
		return l.useless
	}
	o.next = o.begin(ctx, s)
	// The early call counts only if it is the first call of the share as finally decided.
	calls := o.own.calls(o.balance.shares[s.Rank], o.together())
	if o.next.failed != nil || o.next.plan.step != l.step || len(calls) == 0 || !slices.Equal(calls[0], l.micros) {
		return errAnother
	}
	l.sink = o.own.sums.collect(len(l.groups), o.next.readyAt(len(calls) == 1))
	o.next.claimed = t.following
	o.own.compute += t.following
	return nil
}
