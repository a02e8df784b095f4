package collective

import (
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// The watch looks after calls that wait. Nothing of it is in the way of a call that
// moves; a call that does not is treated in three steps:
//
//  1. After rollCallAfter without a message, the rank asks the others of the
//     communicator where they are in its sequence: an ask names the call. So it does
//     when half of the stall limit is over.
//  2. Every rank answers at once, from its own watch, with a tell: in the same call,
//     not there yet, or past it; and how it is held up itself. A rank that is in
//     another call at the same place has found a mismatch and revokes instead.
//  3. After the stall limit, which is learned (habit.go), it asks once more, and OnStall
//     is told who holds up the call (stall.go).
//
// A rank that waits in Send or Recv for one that waits in a collective call for it
// can never be served, because calls come from one goroutine: after two asks in
// that state this is a mismatch, too, unless an ISend or IRecv between them goes on.

const (
	// watchPeriod is how often the watch looks at the calls in progress.
	watchPeriod = 50 * time.Millisecond
	// stoodStill is how far two looks must lie apart for this process to have been stopped.
	stoodStill = 10 * watchPeriod
	// rollCallAfter is how long a call may wait before the first ask, and from one ask to
	// the next; after a report the pause doubles with each, up to rollCallMost.
	rollCallAfter = 200 * time.Millisecond
	rollCallMost  = 2 * time.Second
)

// rollCall is what the watch knows of one call that waits.
type rollCall struct {
	asked    time.Duration // when last, since world.started; 0 for never
	pause    time.Duration
	states   map[int]state // answers by rank of the transport
	strikes  int           // asks of a rank that can never be served
	last     bool          // the answers to the last ask before a report are coming in
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
		o.excused = now
	}
	clear(w.contacts)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.habits.excuse(now)
}

// lookAtAll looks at the calls in progress.
func (w *world) lookAtAll() {
	w.lookBack()
	calling := false
	for _, o := range w.inProgress() {
		calling = w.look(o) || calling
	}
	if !calling {
		clear(w.contacts) // the next roll call finds other circumstances
	}
}

// lookBack lets the habits know of what has happened since the last look.
func (w *world) lookBack() {
	step := int64(0)
	if w.opts.Step != nil {
		step = w.opts.Step()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Since(w.started)
	if w.briefly {
		w.habits.called(now)
		w.briefly = w.brief != nil
	}
	w.habits.inStep(step, now)
}

// look asks and reports if o waits for long. It returns whether a roll call is held.
func (w *world) look(o *operation) bool {
	now := time.Since(w.started)
	waits := now - time.Duration(o.progress.Load())
	w.mu.Lock()
	d := w.habits.judge(o.env.Call, waits, o.age(now), now)
	w.mu.Unlock()
	r := &o.roll
	if !d.likely {
		*r = rollCall{}
		return false
	}
	due := d.overdue && d.held >= 2*r.reported
	switch {
	case due && r.last:
		w.report(o, Stall{Since: d.held, Quiet: waits}, now)
		r.pause = min(2*r.pause, rollCallMost)
		r.last = false
	case due || now-r.asked >= r.pause:
		o.ask(now)
		r.last = due
	}
	return true
}

// age returns for how long o has been in progress while this process ran.
func (o *operation) age(now time.Duration) time.Duration { return now - max(o.begun, o.excused) }

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

// ask sends the roll call to all ranks of the communicator, or to the other side
// of a Send or Recv.
func (o *operation) ask(now time.Duration) {
	r := &o.roll
	r.asked, r.pause = now, max(r.pause, rollCallAfter)
	if r.states == nil {
		r.states = make(map[int]state)
	}
	for _, peer := range o.others() {
		c := o.contacts[peer]
		if c == nil {
			c = &contact{plight: plight{waits: -1, slow: -1}}
			o.contacts[peer] = c
		}
		c.ask(now)
		blocking := o.blocking && !o.serves(peer)
		o.t.Signal(peer, signal{kind: signalAsk, env: o.env, blocking: blocking, at: now}.append(nil))
	}
}

// others returns the ranks of the transport with which o is carried out.
func (o *operation) others() []int {
	if o.peer >= 0 {
		return []int{o.peer}
	}
	var all []int
	for rank := range o.size {
		if peer := o.inWorld(rank); peer != o.self {
			all = append(all, peer)
		}
	}
	return all
}

// serves reports whether a Send or Recv with peer goes on beside the calls that block.
func (w *world) serves(peer int) bool {
	return slices.ContainsFunc(w.inProgress(), func(o *operation) bool {
		return o.peer == peer && !o.blocking
	})
}

// hear takes a signal of another rank. What makes no sense is dropped: signals are
// advisory.
func (w *world) hear(s transport.Signal) {
	m, err := decodeSignal(s.Data)
	if err != nil || !m.plight.fits(w.ranks) {
		return
	}
	if m.kind == signalAsk {
		w.answer(s.From, m)
		return
	}
	w.told(s.From, m)
}

// told takes in an answer to a roll call.
func (w *world) told(from int, m signal) {
	if c := w.contacts[from]; c != nil {
		c.tell(m, time.Since(w.started))
	}
	for _, o := range w.inProgress() {
		concerned := o.env.Comm == m.env.Comm && o.env.Seq == m.env.Seq && (o.peer < 0 || o.peer == from)
		if concerned && o.roll.states != nil {
			o.roll.states[from] = m.state
			w.toldClosed(o, from, m.state)
		}
	}
}

// closedAnswers is how many answers say for certain that a rank has closed the communicator of
// a call: its message may have come before the first one, and its receiver not have run yet.
const closedAnswers = 3

// toldClosed revokes if o waits for a rank that will never make the call.
func (w *world) toldClosed(o *operation, from int, s state) {
	if s != closed {
		return
	}
	if o.roll.strikes++; o.roll.strikes >= closedAnswers {
		w.revoke(&AbortError{Rank: from, Cause: fmt.Sprintf("closed the communicator of %v, which rank %d waits in", o.env.Call, w.self)})
	}
}

// find returns the call at the place of e, if it is in progress or in a queue.
func (w *world) find(e transport.Envelope) (c transport.Call, ok bool) {
	for _, o := range w.inProgress() {
		if o.env.Comm == e.Comm && o.env.Seq == e.Seq {
			return o.env.Call, true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.seqs[e.Comm]; s != nil {
		return s.queue.find(e.Seq)
	}
	return transport.Call{}, false
}

// answer tells rank from where this rank is, or revokes if the two can never meet.
func (w *world) answer(from int, m signal) {
	mine, here := w.find(m.env)
	reply := signal{kind: signalTell, env: m.env, state: absent, at: m.at, plight: w.plight(time.Since(w.started))}
	switch {
	case !here && w.isOver(m.env):
		reply.state = closed
	case m.env.Seq&pointBit != 0:
		// A tag says nothing about places; the other direction finds the mismatch.
	case here && mine != m.env.Call:
		w.revoke(&MismatchError{RankA: w.self, A: mine, RankB: from, B: m.env.Call})
		return
	case here:
		reply.state = present
	case w.isPast(m.env):
		reply.state = past
	default:
		if o := w.neverServed(from, m); o != nil {
			w.revoke(&MismatchError{RankA: w.self, A: o.env.Call, RankB: from, B: m.env.Call,
				Detail: "each waits for the other"})
			return
		}
	}
	w.t.Signal(from, reply.append(nil))
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

// neverServed finds the blocking Send or Recv in which this rank waits for from,
// which itself waits in the blocking collective call m, here not begun, of the same
// communicator.
func (w *world) neverServed(from int, m signal) *operation {
	now := time.Since(w.started)
	for _, o := range w.inProgress() {
		waits := now - time.Duration(o.progress.Load())
		if o.peer != from || !o.blocking || !m.blocking || o.env.Comm != m.env.Comm || waits < rollCallAfter {
			continue
		}
		// A message may have arrived whose receiver has not run yet: once is not enough.
		if o.roll.strikes++; o.roll.strikes >= 2 {
			return o
		}
	}
	return nil
}
