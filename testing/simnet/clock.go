package simnet

import (
	"container/heap"
	"sync"
	"time"
)

// clock calls functions at given times, one after the other, in one goroutine. So all events on the
// network have one order. The functions must not block. In a synctest bubble times are virtual.
type clock struct {
	wake chan struct{} // has an element if the agenda may have a new first entry
	done chan struct{} // closed by stop
	run  sync.WaitGroup

	mu      sync.Mutex
	agenda  agenda
	count   uint64
	stopped bool
}

// newClock starts the goroutine. stop ends it.
func newClock() *clock {
	c := &clock{wake: make(chan struct{}, 1), done: make(chan struct{})}
	c.run.Go(c.loop)
	return c
}

// at schedules f for the time t, after the functions already scheduled for t.
func (c *clock) at(t time.Time, f func()) {
	c.mu.Lock()
	c.count++
	heap.Push(&c.agenda, entry{t, c.count, f})
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// loop is the clock's goroutine.
func (c *clock) loop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		f, next, stopped := c.due()
		switch {
		case stopped:
			return
		case f != nil:
			f()
			continue
		case next >= 0:
			timer.Reset(next)
		default:
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-c.wake:
		case <-c.done:
			return
		}
	}
}

// due removes and returns the first function if it is due. Otherwise next is the time until the
// first function is due, or negative if nothing is scheduled.
func (c *clock) due() (f func(), next time.Duration, stopped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stopped:
		return nil, 0, true
	case len(c.agenda) == 0:
		return nil, -1, false
	}
	if wait := time.Until(c.agenda[0].at); wait > 0 {
		return nil, wait, false
	}
	return heap.Pop(&c.agenda).(entry).f, 0, false
}

// stop drops all scheduled functions and waits for the end of the goroutine.
func (c *clock) stop() {
	c.mu.Lock()
	first := !c.stopped
	c.stopped = true
	c.agenda = nil
	c.mu.Unlock()
	if first {
		close(c.done)
	}
	c.run.Wait()
}

// entry is a scheduled call. number orders calls with the same time.
type entry struct {
	at     time.Time
	number uint64
	f      func()
}

// agenda is a heap of calls, ordered by time. It implements heap.Interface.
type agenda []entry

func (a agenda) Len() int      { return len(a) }
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a agenda) Less(i, j int) bool {
	if !a[i].at.Equal(a[j].at) {
		return a[i].at.Before(a[j].at)
	}
	return a[i].number < a[j].number
}

// Push adds an entry. Package heap calls it.
func (a *agenda) Push(x any) { *a = append(*a, x.(entry)) }

// Pop removes the last entry. Package heap calls it.
func (a *agenda) Pop() any {
	old := *a
	last := old[len(old)-1]
	old[len(old)-1] = entry{} // lets the function be collected
	*a = old[:len(old)-1]
	return last
}
