package trainer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer/internal/ledger"
)

// The next step begins while the sums of the open one are still on their way: parameters are
// updated as their sums come in (pipeline), and the first call of the next share, which waits for
// each (Batch.Wait), follows them. There is no place yet for its gradients: when it asks for that
// (Batch.Grad) the open step is finished first.

// overlaps reports whether a step may begin in the one before. Without a delay that takes a model
// that waits for its parameters, and sums of which a part tells what becomes of a parameter: in
// exact mode all of them together tell whether the step counts, and a limit is one for their norm.
func overlaps(m Model, cfg Config) bool { return cfg.Delay || m.Waits && !cfg.Exact && cfg.Clip == 0 }

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

// errAnother is why a call is of no use that began before the share was known.
var errAnother = errors.New("the share of this peer has become another one")

// lookAhead makes the first call of the step after t, if that may begin so early.
func (o *openStep) lookAhead(ctx context.Context, s *elastic.Session, t *try, finish func() error) {
	if !overlaps(o.model, o.cfg) || t.plan.step >= o.plan.steps {
		return
	}
	p, next := o.state.pipeline, o.plan.step(t.plan.step+1)
	missing := o.balance.sharesAhead(next.microbatches)[s.Rank].Without(ledger.NewSet(next.microbatches))
	apply, mean, err := o.state.rules.due(t.plan.step, o.state.grads)
	if len(missing) == 0 || err != nil {
		return
	}
	p.reserve()
	f := forward{pipeline: p, sums: t.sums, values: mean, samples: int64(t.plan.end - t.plan.first), broken: s.Comm.Err, apply: apply}
	l := newCall(o.model, next, callsOf(missing, o.together())[0], o.own.sums)
	l.broken = s.Comm.Err
	if o.cfg.Delay {
		p.advance(mean, apply)
	} else {
		l.coming = func(i, from int) error { return f.need(ctx, i, from) }
	}
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

// follow finishes the open step, begins the next one, and makes a call that has begun before
// that the first of it; the error says why it cannot be.
func (o *openStep) follow(ctx context.Context, s *elastic.Session, t *try, l *call, finish func() error) error {
	if err := finish(); err != nil {
		return err
	}
	if l.useless != nil {
		return l.useless
	}
	o.next = o.begin(ctx, s)
	calls := o.own.calls(o.balance.shares[s.Rank], o.together())
	if o.next.failed != nil || o.next.plan.step != l.step || len(calls) == 0 || !slices.Equal(calls[0], l.micros) {
		return errAnother
	}
	l.sink = o.own.sums.collect(len(l.groups), o.next.readyAt(len(calls) == 1))
	o.next.claimed = t.following
	o.own.compute += t.following
	return nil
}
