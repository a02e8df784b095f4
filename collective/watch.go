package collective

import (
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/collective/internal/stall"
	"github.com/elrun/elrun/collective/transport"
)

// The watch looks after calls that wait. Nothing of it is in the way of a call that
// moves; a call that does not is treated in three steps:
//
//  1. After stall.AskAfter without a message, the rank asks those for which the call waits
//     where they are in the sequence: an ask names the call. So it does when half of the
//     limit is over.
//  2. Every rank answers at once, from its own watch: in the same call, not there yet, or
//     past it; and for whom it waits itself. A rank that is in another call at the same
//     place has found a mismatch and revokes instead. What is found out later follows.
//  3. After the limit, which is learned, it asks once more, and OnStall is told who holds up
//     the call. Package stall has the limit and the chase for the culprit.
//
// A rank that waits in Send or Recv for one that waits in a collective call for it
// can never be served, because calls come from one goroutine: after two answers that say so
// this is a mismatch, too, unless an ISend or IRecv between them goes on.

const (
	// watchPeriod is how often the watch looks at the calls in progress.
	watchPeriod = 50 * time.Millisecond
	// stoodStill is how far two looks must lie apart for this process to have been stopped.
	stoodStill = 10 * watchPeriod
	// askMost bounds the pause between two asks: it is stall.AskAfter at first, and doubles with
	// each report.
	askMost = 2 * time.Second
	// closedAnswers is how many answers say for certain that a rank has closed the communicator of
	// a call: its message may have come before the first one, and its receiver not have run yet.
	closedAnswers = 3
	// rivalAnswers is how many say so of a rank that is in a call which it cannot leave.
	rivalAnswers = 2
)

// roll is what the watch knows of one call that waits.
type roll struct {
	wait     stall.Wait
	pause    time.Duration // from one ask to the next
	strikes  int           // answers of a rank that can never serve the call
	last     time.Duration // when it asked for the last time before a report, 0 for not yet
	reported time.Duration // how long it had been held up at the last report
}

// watch runs until Close.
func (w *world) watch() {
	ticker := time.NewTicker(watchPeriod)
	defer ticker.Stop()
	last := time.Since(w.started)
	for {
		select {
		case <-w.stop:
			return
		case s := <-w.t.Signals():
			w.hear(s)
		case <-ticker.C:
			now := time.Since(w.started)
			if now-last > stoodStill {
				w.excuse(now)
			}
			last = now
			w.lookAtAll()
		}
	}
}

// excuse lets all waits begin anew at now. This process did not run for a while, as it
// was stopped or starved: what it has not seen meanwhile is nobody else's fault.
func (w *world) excuse(now time.Duration) {
	for _, o := range w.inProgress() {
		o.progress.Store(int64(now))
	}
	w.chase.Rest()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit.Excuse(now)
}

// lookAtAll looks at the calls in progress.
func (w *world) lookAtAll() {
	w.lookBack()
	now := time.Since(w.started)
	waiting := false
	ops := w.waits(now)
	for _, o := range ops {
		waiting = w.look(o, now) || waiting
	}
	if !waiting {
		w.chase.Rest() // the next chase finds other circumstances
	}
	w.chase.Pass(nil, func(e transport.Envelope) stall.Place { return w.place(ops, e, now) }, now)
}

// lookBack lets the limit know of what has happened since the last look.
func (w *world) lookBack() {
	step := int64(0)
	if w.opts.Step != nil {
		step = w.opts.Step()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Since(w.started)
	if w.briefly {
		w.limit.Called(now)
		w.briefly = w.brief != nil
	}
	w.limit.Step(step, now)
}

// look asks and reports if o waits for long. It returns whether anybody waits for the answers.
func (w *world) look(o *operation, now time.Duration) bool {
	r := o.roll
	quiet := now - r.wait.Since
	w.mu.Lock()
	d := w.limit.Judge(quiet, now)
	w.mu.Unlock()
	lacks := func() bool { return w.chase.Lacks(&r.wait, now) }
	if !d.Likely {
		wanted := r.wait.Wanted(now)
		if !wanted {
			r.wait.Forget()
			*r = roll{wait: r.wait}
		} else if lacks() {
			w.chase.Ask(&r.wait, now)
		}
		return wanted
	}
	due := d.Overdue && d.Held >= 2*r.reported
	switch {
	case due && r.last > 0 && (w.chase.Settled(o.cause(), now) || now-r.last >= stall.SilentAfter):
		w.report(o, Stall{Since: d.Held, Quiet: quiet}, now)
		r.pause = min(2*r.pause, askMost)
		r.last = 0
	case due && r.last == 0, now-r.wait.Asked() >= r.pause, lacks():
		r.pause = max(r.pause, stall.AskAfter)
		w.chase.Ask(&r.wait, now)
		if due && r.last == 0 {
			r.last = now
		}
	}
	return true
}

// inProgress returns the calls in progress, the oldest first.
func (w *world) inProgress() []*operation {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notice()
	ops := make([]*operation, 0, len(w.calls))
	for o := range w.calls {
		ops = append(ops, o)
	}
	slices.SortFunc(ops, func(a, b *operation) int { return int(a.begun - b.begun) })
	return ops
}

// waits returns the calls in progress, the oldest first, with what they wait for at now.
func (w *world) waits(now time.Duration) []*operation {
	ops := w.inProgress()
	for _, o := range ops {
		if o.roll == nil {
			o.roll = new(roll)
		}
		x := &o.roll.wait
		x.Envelope, x.Blocking, x.Since, x.Oldest = o.env, o.blocking, time.Duration(o.progress.Load()), nil
		x.For = [2]int{int(o.waiting.Load()) - 1, int(o.sending.Load()) - 1}
		if o.peer >= 0 {
			x.For = [2]int{o.peer, -1}
		}
	}
	if oldest := w.heldUp(ops, now); oldest != nil {
		for _, o := range ops {
			if o != oldest {
				o.roll.wait.Oldest = &oldest.roll.wait
			}
		}
	}
	return ops
}

// heldUp returns the call that holds up this rank, nil for none. Calls that its program is
// not waiting in may stay open for ever, such as a receive for what may never come; they are
// no excuse.
func (w *world) heldUp(ops []*operation, now time.Duration) *operation {
	i := slices.IndexFunc(ops, func(o *operation) bool {
		return now-o.begun >= stall.AskAfter && (o.peer < 0 || o.blocking) && o.roll.wait.Waits()
	})
	if i < 0 {
		return nil
	}
	return ops[i]
}

// cause returns the wait that holds up o: its own, or where it waits for another call of this
// rank that of the oldest.
func (o *operation) cause() *stall.Wait {
	x := &o.roll.wait
	if !x.Waits() && x.Oldest != nil {
		return x.Oldest
	}
	return x
}

// signal sends a signal of the chase.
func (w *world) signal(to int, s *stall.Signal) { w.t.Signal(to, s.Append(nil)) }

// serves reports whether a Send or Recv with peer goes on beside the calls that block.
func serves(ops []*operation, peer int) bool {
	return slices.ContainsFunc(ops, func(o *operation) bool { return o.peer == peer && !o.blocking })
}

// hear takes a signal of another rank. What makes no sense is dropped: signals are
// advisory.
func (w *world) hear(s transport.Signal) {
	m, err := stall.Decode(s.Data, w.ranks)
	if err != nil {
		return
	}
	now := time.Since(w.started)
	ops := w.waits(now)
	if m.Kind == stall.Ask {
		w.answer(s.From, ops, &m, now)
		return
	}
	w.told(s.From, ops, &m, now)
}

// told takes in an answer.
func (w *world) told(from int, ops []*operation, m *stall.Signal, now time.Duration) {
	o := find(ops, m.Envelope)
	if o == nil || o.peer >= 0 && o.peer != from {
		w.chase.Hear(from, m, nil, now)
		return
	}
	w.chase.Hear(from, m, &o.roll.wait, now)
	if m.At > 0 {
		w.hopeless(o, from, m, now)
	}
	w.chase.Pass(&o.roll.wait, func(e transport.Envelope) stall.Place { return w.place(ops, e, now) }, now)
}

// hopeless revokes if o waits for a rank that can never serve it.
func (w *world) hopeless(o *operation, from int, m *stall.Signal, now time.Duration) {
	rival := o.peer >= 0 && o.blocking && now-o.roll.wait.Since >= stall.AskAfter && m.Rival.Call.Kind != 0 && !w.isPast(m.Rival)
	if !rival && m.State != stall.Closed {
		return
	}
	o.roll.strikes++
	switch {
	case m.State == stall.Closed && o.roll.strikes >= closedAnswers:
		w.revoke(&AbortError{Rank: from, Cause: fmt.Sprintf("closed the communicator of %v, which rank %d waits in", o.env.Call, w.self)})
	case rival && o.roll.strikes >= rivalAnswers:
		w.revoke(&MismatchError{RankA: w.self, A: o.env.Call, RankB: from, B: m.Rival.Call, Detail: "each waits for the other"})
	}
}

// find returns the call at the place of e, nil for none.
func find(ops []*operation, e transport.Envelope) *operation {
	i := slices.IndexFunc(ops, func(o *operation) bool { return o.env.Comm == e.Comm && o.env.Seq == e.Seq })
	if i < 0 {
		return nil
	}
	return ops[i]
}

// queued returns the call at the place of e, if it is in a queue.
func (w *world) queued(e transport.Envelope) (c transport.Call, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.seqs[e.Comm]; s != nil {
		return s.queue.find(e.Seq)
	}
	return transport.Call{}, false
}

// answer tells rank from where this rank is, or revokes if the two can never meet.
func (w *world) answer(from int, ops []*operation, m *stall.Signal, now time.Duration) {
	mine, here := w.queued(m.Envelope)
	if o := find(ops, m.Envelope); o != nil {
		mine, here = o.env.Call, true
	}
	if here && m.Seq&pointBit == 0 && mine != m.Call { // a tag says nothing about places
		w.revoke(&MismatchError{RankA: w.self, A: mine, RankB: from, B: m.Call})
		return
	}
	p := w.place(ops, m.Envelope, now)
	if m.Seq&pointBit != 0 && !serves(ops, from) {
		p.Rival = w.rival(ops, m.Comm, now)
	}
	w.chase.Answer(from, m, p, now)
}

// place says where this rank is in relation to the call of e.
func (w *world) place(ops []*operation, e transport.Envelope, now time.Duration) stall.Place {
	o := find(ops, e)
	_, queued := w.queued(e)
	point := e.Seq&pointBit != 0
	p := stall.Place{State: stall.NotYet, Busy: slices.ContainsFunc(ops, func(o *operation) bool {
		return now-o.begun >= stall.AskAfter && (o.peer < 0 || o.blocking)
	})}
	switch {
	case o == nil && !queued && w.isOver(e):
		return stall.Place{State: stall.Closed}
	case !point && (o != nil || queued):
		p.State = stall.Present
	case !point && w.isPast(e):
		return stall.Place{State: stall.Past}
	}
	if p.State == stall.Present && o != nil && o.roll.wait.Waits() {
		p.Wait = &o.roll.wait
	} else if held := w.heldUp(ops, now); held != nil {
		p.Wait = &held.roll.wait
	}
	return p
}

// rival returns the blocking collective call of a communicator in which this rank waits.
func (w *world) rival(ops []*operation, comm uint64, now time.Duration) transport.Envelope {
	i := slices.IndexFunc(ops, func(o *operation) bool {
		return o.env.Comm == comm && o.peer < 0 && o.blocking && now-o.roll.wait.Since >= stall.AskAfter && o.env.Call.Kind != transport.KindPoint
	})
	if i < 0 {
		return transport.Envelope{}
	}
	return ops[i].env
}

// isPast reports whether this rank has begun, and so ended, the call of e.
func (w *world) isPast(e transport.Envelope) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.seqs[e.Comm]
	return s != nil && int32((s.begun-e.Seq)<<1) >= 0 // modulo 1<<31
}

// isOver reports whether this rank has closed the communicator of e, and has not begun the
// call: then it never will.
func (w *world) isOver(e transport.Envelope) bool {
	if e.Seq&pointBit == 0 && w.isPast(e) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seqs[e.Comm].over()
}
