package p2p

import (
	"slices"
	"sync"
)

// queue lets one writer of a stream in at a time: of those that wait one of the highest
// priority, and of its equals the one that came first. What one writer writes is small
// beside what waits, so an urgent message need not be: it is the next one.
type queue struct {
	mu      sync.Mutex
	busy    bool
	waiting []*place // in the order in which they will be let in
	places  sync.Pool
}

// place is that of a writer.
type place struct {
	priority int32
	turn     chan struct{} // has a token when the writer may write
}

func newQueue() *queue {
	q := &queue{}
	q.places.New = func() any { return &place{turn: make(chan struct{}, 1)} }
	return q
}

// join takes a place. Who gets a token from its turn calls leave, and others quit.
func (q *queue) join(priority int32) *place {
	p := q.places.Get().(*place)
	p.priority = priority
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.busy {
		q.busy = true
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

// leave gives up the place of a writer that has written.
func (q *queue) leave(p *place) {
	q.places.Put(p)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.next()
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
