package mesh

import (
	"slices"
	"sync"
)

// queue lets one writer at a time write on a stream. The next writer is the waiting one with the highest
// priority, and among equal ones the one that came first. A writer is never interrupted: each writes only
// a small part of the bytes that wait, so an urgent message is written soon.
//
// The parts of a long message are written one by one, and the goroutine that has written one part comes
// back with the next in a moment. So when a writer leaves and all waiting ones have lower priorities, the
// stream stays free for writers above these, until the goroutine of the former writer waits for something
// else. Otherwise the long message would alternate with messages of lower priority.
type queue struct {
	mu      sync.Mutex
	busy    bool
	open    bool     // busy, but nobody writes: a writer whose priority is above those that wait may begin
	waiting []*place // in the order in which they will write
	places  sync.Pool
	later   func(f func()) // calls f when the calling goroutine waits
}

// place is the place of a writer in the queue.
type place struct {
	priority int32
	turn     chan struct{} // has a token when the writer may write
}

func newQueue() *queue {
	q := &queue{later: func(f func()) { go f() }}
	q.places.New = func() any { return &place{turn: make(chan struct{}, 1)} }
	return q
}

// join takes a place in the queue. The caller receives a token from the place's turn, writes, and calls leave;
// or it calls quit without receiving.
func (q *queue) join(priority int32) *place {
	p := q.places.Get().(*place)
	p.priority = priority
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.busy || q.open && q.precedes(priority) {
		q.busy, q.open = true, false
		p.turn <- struct{}{}
		return p
	}
	at := len(q.waiting)
	for at > 0 && q.waiting[at-1].priority < priority {
		at--
	}
	q.waiting = slices.Insert(q.waiting, at, p)
	return p
}

// precedes reports whether a priority is higher than the priorities of all waiting writers.
func (q *queue) precedes(priority int32) bool {
	return len(q.waiting) == 0 || q.waiting[0].priority < priority
}

// leave gives up the place of a writer that has written.
func (q *queue) leave(p *place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 && q.precedes(p.priority) {
		q.open = true
		q.later(q.close)
	} else {
		q.next()
	}
	q.places.Put(p)
}

// close lets the next waiting writer write, unless a writer of a higher priority has come meanwhile.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open {
		q.open = false
		q.next()
	}
}

// quit gives up the place of a writer that does not wait for its turn any more. The turn may have
// come meanwhile.
func (q *queue) quit(p *place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if at := slices.Index(q.waiting, p); at >= 0 {
		q.waiting = slices.Delete(q.waiting, at, at+1)
	} else {
		<-p.turn
		q.next()
	}
	q.places.Put(p)
}

// next lets the next waiting writer write. The caller holds the lock.
func (q *queue) next() {
	if len(q.waiting) == 0 {
		q.busy = false
		return
	}
	p := q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	p.turn <- struct{}{}
}
