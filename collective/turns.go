package collective

import (
	"sync"
	"sync/atomic"
)

// turns serialises the calls that use the same resource, in the order in which they began.
// It is a ticket lock whose waiters sleep, and whose unlock wakes only the next waiter (no
// thundering herd).
//
// A call draws its ticket under world.mu, together with its place in the sequence. So all
// ranks serve their calls in the same order.
type turns struct {
	line    line                     // of Sends or Recvs; zero for other calls
	drawn   uint32                   // number of tickets that were drawn; guarded by world.mu
	turn    atomic.Uint32            // ticket of the call that may proceed
	broken  atomic.Bool              // a call has failed, so the state of the resource is unknown
	waiting atomic.Int32             // number of calls in await
	mu      sync.Mutex               // guards wake
	wake    map[uint32]chan struct{} // by ticket, of the calls that sleep
}

// line identifies Sends or Recvs whose messages have the same envelope key. They must not
// run at the same time, as the transport could not distinguish their messages.
type line struct {
	peer    int // rank of the transport at the other end
	tag     uint32
	sending bool
}

// queueUp draws a ticket for a Send or Recv, and creates the lock of its line if necessary.
// The caller holds world.mu.
func (s *sequence) queueUp(o *operation, l line) {
	if s.lines == nil {
		s.lines = make(map[line]*turns)
	}
	if s.lines[l] == nil {
		s.lines[l] = &turns{line: l}
	}
	o.turns, o.ticket = s.lines[l], s.lines[l].draw()
}

// stepOut deletes the lock of a line when its last Send or Recv ends. The caller holds
// world.mu.
func (s *sequence) stepOut(o *operation) {
	if o.peer >= 0 && s.lines[o.turns.line] == o.turns && o.turns.drawn == o.ticket+1 {
		delete(s.lines, o.turns.line)
	}
}

// draw returns the next ticket. The caller holds world.mu, as tickets follow the sequence
// of the calls.
func (t *turns) draw() uint32 {
	t.drawn++
	return t.drawn - 1
}

// enter waits until the turn of o comes. It returns the cause of the revocation if an
// earlier call has failed.
func (t *turns) enter(o *operation) error {
	if t.turn.Load() != o.ticket {
		t.await(o.ticket)
	}
	if t.broken.Load() {
		return o.whyRevoked()
	}
	return nil
}

// await sleeps until the turn of a ticket comes. It increments waiting before it checks
// turn, and leave advances turn before it checks waiting. So at least one of the two sees
// the other, and no wake-up is lost.
func (t *turns) await(ticket uint32) {
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	if turn := t.sleeper(ticket); turn != nil {
		<-turn
	}
}

// sleeper returns a channel that is closed when the turn of the ticket comes; nil if it has
// come.
func (t *turns) sleeper(ticket uint32) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.turn.Load() == ticket || t.broken.Load() {
		return nil
	}
	if t.wake == nil {
		t.wake = make(map[uint32]chan struct{})
	}
	c := make(chan struct{})
	t.wake[ticket] = c
	return c
}

// leave passes the turn to the next call. After a failure (well is false) it wakes all
// waiters, and all of them fail.
func (t *turns) leave(well bool) {
	if !well {
		t.broken.Store(true)
	}
	next := t.turn.Add(1)
	if t.waiting.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rouse(next)
	if !t.broken.Load() {
		return
	}
	for ticket := range t.wake {
		t.rouse(ticket)
	}
}

// rouse wakes the call with a ticket if it sleeps. The caller holds mu.
func (t *turns) rouse(ticket uint32) {
	if c := t.wake[ticket]; c != nil {
		close(c)
		delete(t.wake, ticket)
	}
}

// whyRevoked returns the error of a call that comes after a failed one.
func (w *world) whyRevoked() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause == nil {
		return ErrRevoked
	}
	return w.cause
}
