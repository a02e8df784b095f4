package collective

import (
	"sync"
	"sync/atomic"
)

// turns lets calls that use the same things through one after the other, in the order in
// which they began: a ticket lock whose waiters sleep, and of which each leave wakes the
// next one only.
type turns struct {
	line    line          // of Sends or Recvs; zero for those of calls in memory
	drawn   uint32        // tickets
	turn    atomic.Uint32 // ticket of the call that may go on
	broken  atomic.Bool   // a call has failed, after which nothing is known of what they use
	waiting atomic.Int32  // calls
	mu      sync.Mutex
	wake    map[uint32]chan struct{} // by ticket, of the calls that sleep
}

// line is what Sends or Recvs have in common of which the messages could be taken for each
// other's.
type line struct {
	peer    int // rank of the transport at the other end
	tag     uint32
	sending bool
}

// queueUp gives a Send or Recv its ticket in its line, which it makes for the first one. The
// caller holds the world's lock.
func (s *sequence) queueUp(o *operation, l line) {
	if s.lines == nil {
		s.lines = make(map[line]*turns)
	}
	if s.lines[l] == nil {
		s.lines[l] = &turns{line: l}
	}
	o.turns, o.ticket = s.lines[l], s.lines[l].draw()
}

// stepOut ends the line of a Send or Recv that was the last one there. The caller holds the
// world's lock.
func (s *sequence) stepOut(o *operation) {
	if o.peer >= 0 && s.lines[o.turns.line] == o.turns && o.turns.drawn == o.ticket+1 {
		delete(s.lines, o.turns.line)
	}
}

// draw returns a ticket. The caller holds the world's lock, as tickets follow the sequence of
// the calls.
func (t *turns) draw() uint32 {
	t.drawn++
	return t.drawn - 1
}

// enter waits until the calls before are through.
func (t *turns) enter(o *operation) error {
	if t.turn.Load() != o.ticket {
		t.await(o.ticket)
	}
	if t.broken.Load() {
		return o.whyRevoked()
	}
	return nil
}

// await waits for a turn. It counts as waiting before it looks, and leave looks whether
// any waits after it has moved on, so that one of the two sees the other.
func (t *turns) await(ticket uint32) {
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	if turn := t.sleeper(ticket); turn != nil {
		<-turn
	}
}

// sleeper returns what is closed when the ticket's turn comes, nil if it has come.
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

// leave lets the next call in. After a failure that is all of them: none goes on.
func (t *turns) leave(well bool) {
	if !well {
		t.broken.Store(true)
	}
	next := t.turn.Add(1)
	if t.waiting.Load() == 0 {
		return
	}
	t.mu.Lock() // who waits has not looked yet, or sleeps
	defer t.mu.Unlock()
	t.rouse(next)
	if !t.broken.Load() {
		return
	}
	for ticket := range t.wake {
		t.rouse(ticket)
	}
}

// rouse wakes the call with a ticket if it sleeps. The caller holds the lock.
func (t *turns) rouse(ticket uint32) {
	if c := t.wake[ticket]; c != nil {
		close(c)
		delete(t.wake, ticket)
	}
}

// whyRevoked is the error of a call that comes after one that has failed.
func (w *world) whyRevoked() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause == nil {
		return ErrRevoked
	}
	return w.cause
}
