package collective

import "sync"

// turns lets calls that use the same things through one after the other, in the order in
// which they began.
type turns struct {
	mu     sync.Mutex
	moved  sync.Cond
	drawn  uint32 // tickets
	turn   uint32 // ticket of the call that may go on
	broken bool   // a call has failed, after which nothing is known of what they use
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
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.turn != o.ticket && !t.broken {
		t.moved.Wait()
	}
	if t.broken {
		return o.whyRevoked()
	}
	return nil
}

// leave lets the next call in.
func (t *turns) leave(well bool) {
	t.mu.Lock()
	t.turn++
	t.broken = t.broken || !well
	t.mu.Unlock()
	t.moved.Broadcast()
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
