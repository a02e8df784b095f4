package shm

import (
	"sync"
)

// Bell wakes the goroutines of this process that wait in a segment. They sleep as
// goroutines do, so that a processor of the Go runtime is left to the others: one that
// sleeps in a system call of its own keeps it for up to 10 ms. Others ring by a Rope.
type Bell struct {
	outside // what other processes ring

	mu    sync.Mutex
	rung  *sync.Cond
	times uint64
}

// newBell returns a bell that only this process can ring.
func newBell() *Bell {
	b := new(Bell)
	b.rung = sync.NewCond(&b.mu)
	return b
}

// ring wakes all that sleep.
func (b *Bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.times++
	b.rung.Broadcast()
}

// heard returns how often the bell was rung.
func (b *Bell) heard() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.times
}

// sleep waits until the bell has been rung more often than that.
func (b *Bell) sleep(heard uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.times == heard {
		b.rung.Wait()
	}
}
