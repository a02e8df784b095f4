package collective

import (
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/collective/internal/stall"
	"github.com/elrun/elrun/collective/transport"
)

// The watch is the watchdog of calls that wait. It costs a call that makes progress
// nothing. It treats a call that waits in three steps:
//
//  1. After stall.AskAfter without a message, or when half of the limit has passed, it asks
//     the ranks for which the call waits where they are in the sequence. An ask names the
//     call.
//  2. Every rank answers at once, from its own watch: it is in the same call, has not begun
//     it, or is past it; and for which ranks it waits itself. A rank that is in another
//     call at the same place has found a mismatch and revokes instead. News follows the
//     answer.
//  3. After the limit, an adaptive timeout, it asks once more and then reports to OnStall
//     the ranks that hold up the call. Package stall computes the limit and finds these
//     ranks.
//
// A deadlock between a Send or Recv and a collective call is a mismatch, too. Suppose that
// rank A waits in Send or Recv for rank B, and B waits in a collective call for A. Calls
// come from one goroutine per rank, so neither can ever be served, unless an ISend or IRecv
// between the two is in progress. Two answers of B that say so make it certain.

const (
	// watchPeriod is the interval at which the watch checks the calls in progress.
	watchPeriod = 50 * time.Millisecond
	// stoodStill is the interval between two checks from which this process is assumed to
	// have been stopped or starved.
	stoodStill = 10 * watchPeriod
	// askMost bounds the pause between two asks. The pause is stall.AskAfter at first and
	// doubles with each report (exponential backoff).
	askMost = 2 * time.Second
	// closedAnswers is the number of answers that prove that a rank has closed the
	// communicator of a call without serving it. Its message may have come before the first
	// answer, and the receiver may not have run yet.
	closedAnswers = 3
	// rivalAnswers is the number of answers that prove that a rank is in a call which it
	// cannot leave.
	rivalAnswers = 2
)

// roll is the state of the watch for one call that waits.
type roll struct {
	wait     stall.Wait    // edges of the call in the waits-for graph
	pause    time.Duration // from one ask to the next
	strikes  int           // number of answers of a rank that can never serve the call
	last     time.Duration // time of the last ask before a report, 0 if it was not sent yet
	reported time.Duration // how long the call had been held up at the last report
}

// watch handles signals and checks the calls in progress until Close. One goroutine runs
// it, which owns the rolls and the chase.
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

// excuse restarts the clocks of all waits at now. This process did not run for a while, so
// messages that it has not received meanwhile are not the fault of other ranks.
func (w *world) excuse(now time.Duration) {
	for _, o := range w.inProgress() {
		o.progress.Store(int64(now))
	}
	w.chase.Rest()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit.Excuse(now)
}

// lookAtAll checks all calls in progress, and passes news to the ranks that have asked.
func (w *world) lookAtAll() {
	w.lookBack()
	now := time.Since(w.started)
	waiting := false
	ops := w.waits(now)
	for _, o := range ops {
		waiting = w.look(o, now) || waiting
	}
	if !waiting {
		w.chase.Rest() // the next chase finds other conditions
	}
	w.chase.Pass(nil, func(e transport.Envelope) stall.Place { return w.place(ops, e, now) }, now)
}

// lookBack updates the limit: calls without bookkeeping since the last check, and the
// current step of the program.
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

// look checks one call: it asks, and reports, if o has waited for long. It returns whether
// some rank needs the answers, this one or another one that has asked.
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

// inProgress returns the calls in progress, the oldest first. It tracks the brief call if
// there is one.
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

// waits is inProgress, with the rolls of the calls brought up to date.
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

// heldUp returns the oldest call that holds up this rank, nil for none. A Send or Recv in
// the background does not count: its program does not wait for it, so it may stay open for
// ever, such as a receive for a message that may never come.
func (w *world) heldUp(ops []*operation, now time.Duration) *operation {
	i := slices.IndexFunc(ops, func(o *operation) bool {
		return now-o.begun >= stall.AskAfter && (o.peer < 0 || o.blocking) && o.roll.wait.Waits()
	})
	if i < 0 {
		return nil
	}
	return ops[i]
}

// cause returns the wait that holds up o: its own wait, or the wait of the oldest call of
// this rank if o waits for that call.
func (o *operation) cause() *stall.Wait {
	x := &o.roll.wait
	if !x.Waits() && x.Oldest != nil {
		return x.Oldest
	}
	return x
}

// signal sends a signal of the chase.
func (w *world) signal(to int, s *stall.Signal) { w.t.Signal(to, s.Append(nil)) }

// serves reports whether a Send or Recv with peer is in progress in the background.
func serves(ops []*operation, peer int) bool {
	return slices.ContainsFunc(ops, func(o *operation) bool { return o.peer == peer && !o.blocking })
}

// hear handles a signal of another rank. Signals are advisory, so undecodable ones are
// dropped.
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

// told records an answer, revokes if the call can never be served, and passes the news on.
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

// hopeless revokes if rank from can never serve o: it has closed the communicator, or it is
// in a blocking call that waits for this rank.
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

// queued returns the queued call at the place of e.
func (w *world) queued(e transport.Envelope) (c transport.Call, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.seqs[e.Comm]; s != nil {
		return s.queue.find(e.Seq)
	}
	return transport.Call{}, false
}

// answer answers an ask of rank from with the place of this rank. It revokes if the two
// ranks are in different calls at one place.
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

// place returns the position of this rank in relation to the call of e.
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

// rival returns the blocking collective call of a communicator in which this rank has
// waited for stall.AskAfter; the zero Envelope for none.
func (w *world) rival(ops []*operation, comm uint64, now time.Duration) transport.Envelope {
	i := slices.IndexFunc(ops, func(o *operation) bool {
		return o.env.Comm == comm && o.peer < 0 && o.blocking && now-o.roll.wait.Since >= stall.AskAfter && o.env.Call.Kind != transport.KindPoint
	})
	if i < 0 {
		return transport.Envelope{}
	}
	return ops[i].env
}

// isPast reports whether this rank has begun the collective call of e. If the call is not
// in progress, it has ended.
func (w *world) isPast(e transport.Envelope) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.seqs[e.Comm]
	return s != nil && int32((s.begun-e.Seq)<<1) >= 0 // modulo 1<<31
}

// isOver reports whether this rank has closed the communicator of e without beginning the
// call, so that it never will.
func (w *world) isOver(e transport.Envelope) bool {
	if e.Seq&pointBit == 0 && w.isPast(e) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seqs[e.Comm].over()
}
