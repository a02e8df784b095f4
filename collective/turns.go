package collective

import (
	"sync"
	"sync/atomic"
)

// turns lets calls that use the same things through one after the other, in the order in
// which they began.
type turns struct {
	drawn   uint32        // tickets
	turn    atomic.Uint32 // ticket of the call that may go on
	broken  atomic.Bool   // a call has failed, after which nothing is known of what they use
	waiting atomic.Int32  // calls
	mu      sync.Mutex
	moved   sync.Cond
}

func newTurns() *turns {
	t := new(turns)
	t.moved.L = &t.mu
	return t
}

// draw gives a call its ticket. The caller holds the world's lock, as tickets follow the
// sequence of the calls.
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
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.turn.Load() != ticket && !t.broken.Load() {
		t.moved.Wait()
	}
}

// leave lets the next call in.
func (t *turns) leave(well bool) {
	if !well {
		t.broken.Store(true)
	}
	t.turn.Add(1)
	if t.waiting.Load() > 0 {
		t.mu.Lock() // who waits has not looked yet, or sleeps
		defer t.mu.Unlock()
		t.moved.Broadcast()
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
