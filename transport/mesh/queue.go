package mesh

import (
	"slices"
	"sync"
)

// queue lets one writer of a stream in at a time: of those that wait one of the highest
// priority, and of its equals the one that came first. What one writer writes is small
// beside what waits, so an urgent message need not be: it is the next one.
//
// The parts of a long message are written one by one, and who has written one is back with the
// next in a moment. So a writer that was more urgent than those that wait leaves the stream
// open until its goroutine has done what it does: else it would share the stream with them.
type queue struct {
	mu      sync.Mutex
	busy    bool
	open    bool     // nobody writes, though busy: who is more urgent than those that wait may
	waiting []*place // in the order in which they will be let in
	places  sync.Pool
	later   func(f func()) // calls f when this goroutine waits
}

// place is that of a writer.
type place struct {
	priority int32
	turn     chan struct{} // has a token when the writer may write
}

func newQueue() *queue {
	q := &queue{later: func(f func()) { go f() }}
	q.places.New = func() any { return &place{turn: make(chan struct{}, 1)} }
	return q
}

// join takes a place. Who gets a token from its turn calls leave, and others quit.
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

// precedes reports whether a priority is higher than that of all who wait.
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

// close lets the next writer in unless one that was more urgent came.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open {
		q.open = false
		q.next()
	}
}

// quit gives up the place of a writer that does not wait for its turn any more. It may have
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

// next lets the next writer in. The caller holds the lock.
func (q *queue) next() {
	if len(q.waiting) == 0 {
		q.busy = false
		return
	}
	p := q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	p.turn <- struct{}{}
}
