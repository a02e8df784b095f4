package shm

import (
	"sync"
)

// Event wakes the goroutines of this process that wait in a segment. They sleep on a condition
// variable and not in a system call: a goroutine in a system call keeps its processor (P) of the Go
// runtime for up to 10 ms. Other processes signal it with a Waker.
type Event struct {
	eventFile // signalled by other processes

	// mu guards the fields below.
	mu      sync.Mutex
	changed *sync.Cond
	signals uint64 // number of signals so far
}

// newEvent returns an event that only this process can signal.
func newEvent() *Event {
	e := new(Event)
	e.changed = sync.NewCond(&e.mu)
	return e
}

// signal wakes all sleepers.
func (e *Event) signal() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.signals++
	e.changed.Broadcast()
}

// count returns the number of signals so far.
func (e *Event) count() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.signals
}

// sleep waits until the number of signals differs from seen, which is a result of count.
func (e *Event) sleep(seen uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.signals == seen {
		e.changed.Wait()
	}
}
