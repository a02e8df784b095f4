package trainer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
)

// try is a try at a step in a session.
type try struct {
	plan    stepPlan
	begun   time.Time
	sums    *reduction    // of the buckets
	whole   bool          // nothing of this peer's share was there when it began
	before  time.Duration // computing, for the same step, before it began
	claimed time.Duration // computing its first call in the step before
	// following is the computing of the first call of the step after it, while it was open.
	following time.Duration
	failed    error // of that call

	computed time.Time // when this peer's share was complete
}

// readyAt returns what is told of gradients that are complete: the reduction, if they are those
// of the last call.
func (t *try) readyAt(last bool) func(i, from int) {
	if last {
		return t.sums.ready
	}
	return ignore
}

// step tries the step after the committed one: it computes this peer's share, reduces,
// and applies the result. It returns nil when the step is committed, and also when all
// have to compute it again with another scale. On any error but those that end the job
// the contribution keeps what it has.
func (r *runner) step(ctx context.Context, s *elastic.Session) error {
	t := r.next
	if r.next = nil; t == nil {
		t = r.begin(ctx, s)
	}
	if err := r.contribute(ctx, s, t); err != nil {
		return fmt.Errorf("step %d: %w", t.plan.step, err)
	}
	return r.await(ctx, s, t)
}

// begin begins to try the step after the committed one.
func (r *runner) begin(ctx context.Context, s *elastic.Session) *try {
	p := r.plan.step(r.state.committed() + 1)
	t := &try{plan: p, begun: time.Now(), whole: r.open.held.Len() == 0, before: r.open.compute}
	if r.cfg.OnBegin != nil {
		r.cfg.OnBegin(p.step)
	}
	r.balance.micros = 0
	r.readAhead(p, s.Rank)
	ordered := r.ordered(s, p.step)
	t.sums = newReduction(r.layout, func(b bucket) pending { return r.reduce(ctx, s.Comm, ordered, b) })
	t.sums.yield = r.progress.Poll
	return t
}

// contribute computes what is missing of this peer's share and starts the reduction of
// every bucket.
func (r *runner) contribute(ctx context.Context, s *elastic.Session, t *try) error {
	share, err := r.shares[s.Rank], t.failed
	if err == nil {
		err = r.open.complete(ctx, r.model, t.plan, r.open.calls(share, r.together()), t.sums, s.Comm.Err)
	}
	if err == nil {
		r.balance.measured(share.Len(), t.whole, r.open.compute-t.before)
		t.computed = time.Now()
		return nil
	}
	// The others wait for this peer's buckets. They learn the reason, and the calls that
	// have begun here end before the buffers are left.
	s.Comm.Revoke(err)
	_ = t.sums.wait(ctx) // its error is only that of the revocation
	if errors.Is(err, ErrOutOfMemory) {
		err = r.takeLess(t.plan, share.Len(), err)
	}
	return err
}

// exchanged is what this peer has of a step when all buckets and the tail are there.
type exchanged struct {
	slots []slot
	tail  time.Duration // that the exchange of the slots took
	err   error
}

// exchangeAfter waits until the sums of all buckets are there, and exchanges slots.
func (r *runner) exchangeAfter(ctx context.Context, s *elastic.Session, t *try, mine slot) exchanged {
	if err := t.sums.wait(ctx); err != nil {
		return exchanged{err: fmt.Errorf("step %d: %w", t.plan.step, err)}
	}
	begun := time.Now()
	slots, err := r.exchange(ctx, s, mine)
	return exchanged{slots, time.Since(begun), err}
}

// finishStep commits a step whose tail is complete. Nothing of it stays if that fails.
func (r *runner) finishStep(s *elastic.Session, t *try, got exchanged) error {
	defer r.state.pipeline.takeBack() // unless the step is committed
	if got.err != nil {
		return got.err
	}
	comm := time.Since(t.computed)
	if err := r.learn(s, got.slots); err != nil {
		return err
	}
	committed, err := r.conclude(s, t.plan, got.slots)
	if err != nil {
		return fmt.Errorf("step %d: %w", t.plan.step, err)
	}
	r.shareOut(s, got.slots, committed)
	if !committed {
		return nil
	}
	r.reporter.own.comm, r.reporter.own.total = comm-t.following, time.Since(t.begun)+t.claimed-t.following
	r.publish(s, got.slots, got.tail)
	if err := r.group.Committed(r.state.committed()); err != nil {
		return fmt.Errorf("step %d is committed: %w", r.state.committed(), err)
	}
	if anyStale(got.slots) {
		return errNextSession
	}
	return nil
}

// contributed describes the contribution in a tail.
func (r *runner) contributed() slot {
	mine := slot{samples: int64(r.open.samples), loss: r.open.loss, fault: r.open.fault(),
		micros: r.balance.micros, most: int64(r.balance.most)}
	if r.noiseDue(r.open.step) {
		mine.square = r.open.sums.square()
	}
	return mine
}

// tail exchanges the ranks' slots, to which it adds what this peer declares. When it
// returns nil every rank's contribution is in every rank's sums. The step that was
// committed before is stable then, and reported.
func (r *runner) tail(ctx context.Context, s *elastic.Session, mine slot) ([]slot, error) {
	slots, err := r.exchange(ctx, s, r.declare(mine))
	if err != nil {
		return nil, err
	}
	return slots, r.learn(s, slots)
}

// declare adds to a slot which step this peer has committed, and the state after it.
func (r *runner) declare(mine slot) slot {
	mine.committed, mine.digest = r.state.committed(), r.state.dueDigest()
	return mine
}

// exchange is the call of the tail.
func (r *runner) exchange(ctx context.Context, s *elastic.Session, mine slot) ([]slot, error) {
	mine.stale, mine.links = s.Stale(), r.links.measure()
	words := make([]int64, len(s.View.Members)*slotWords)
	putSlot(words, s.Rank, mine)
	if err := collective.AllReduce(ctx, s.Comm.With(collective.CallOptions{For: "tail"}), words, words, collective.Sum[int64]); err != nil {
		return nil, fmt.Errorf("tail after step %d: %w", r.state.committed(), err)
	}
	return getSlots(words), nil
}

// learn takes in a complete tail.
func (r *runner) learn(s *elastic.Session, slots []slot) error {
	r.links.learn(slots)
	var states []fingerprint
	for _, other := range slots {
		states = append(states, fingerprint{other.committed, other.digest})
	}
	if err := r.agree(s, states); err != nil {
		return fmt.Errorf("after step %d: %w", r.state.committed(), err)
	}
	if last := r.state.last; last.Step > 0 && r.reporter.stable(last, s.View, s.View.Members[s.Rank].ID) {
		r.group.Stable(last.Step)
		r.saver.stable(r.state, s.Rank == 0, r.finished())
	}
	return nil
}

// conclude commits the step whose tail is complete, or, if its sums do not fit the
// scale, begins another attempt. All ranks come to the same, errors included.
func (r *runner) conclude(s *elastic.Session, p stepPlan, slots []slot) (committed bool, err error) {
	if err := checkFaults(slots, peerName(s), r.layout.params); err != nil {
		return false, err
	}
	samples, loss := totals(slots)
	if want := int64(p.end - p.first); samples != want {
		return false, fmt.Errorf("peers contributed %d samples, the step has %d", samples, want)
	}
	next, fits := r.open.sums.mean(samples, r.state.unmeant)
	if !fits {
		r.open.reset(p.step, r.open.attempt+1, next, p.microbatches)
		return false, nil
	}
	norm := r.norm(p.step)
	o := outcome{Step: p.step, Attempt: r.open.attempt, Epoch: s.View.Epoch, Peers: len(slots), Samples: samples, Loss: loss}
	for rank, m := range s.View.Members {
		o.Shares = append(o.Shares, share{m.ID, r.shares[rank].Ranges()})
	}
	if err := r.state.commit(o, next); err != nil {
		return false, err
	}
	r.weigh(slots, s.Rank, norm)
	return true, nil
}

// goOn reports whether an error of a session is followed by another session.
func goOn(err error) bool {
	return errors.Is(err, collective.ErrRevoked) || errors.Is(err, errNextSession)
}
