package mesh

import (
	"slices"
	"sync"
)

// writerQueue lets one writer at a time write on a stream. The next writer is the waiting writer
// with the highest priority. Among writers of equal priority it is the first that came. A writer is
// never interrupted: it writes one frame at a time, so an urgent message waits for one frame at
// most.
//
// A long message is written in several frames, and its goroutine comes back with the next frame in
// a moment. If other writers of lower priority got the stream in between, the long message would
// alternate with theirs. So when a writer leaves and all waiting writers have a lower priority, the
// stream stays free until the goroutine of that writer waits for something else. Meanwhile only a
// writer of a priority above all waiting writers gets the stream.
//
// Among writers of one priority it is a ticket lock. Unlike a sync.Mutex it is fair, and a writer
// may stop waiting.
type writerQueue struct {
	// mu guards busy, yielding and waiting.
	mu   sync.Mutex
	busy bool
	// yielding is set if the queue is busy and nobody writes. Then a writer may begin if its
	// priority is above the priorities of all waiting writers.
	yielding bool
	// waiting has the tickets of the waiting writers in the order in which they will write.
	waiting    []*ticket
	tickets    sync.Pool
	afterYield func(f func()) // calls f in another goroutine, as a rule when the calling goroutine waits
}

// ticket is the place of a writer in the queue. Tickets are pooled, along with their channels: a
// message must not allocate memory.
type ticket struct {
	priority int32
	turn     chan struct{} // has a token when the writer may write
}

func newWriterQueue() *writerQueue {
	q := &writerQueue{afterYield: func(f func()) { go f() }}
	q.tickets.New = func() any { return &ticket{turn: make(chan struct{}, 1)} }
	return q
}

// enqueue returns the ticket of a new writer. Calls of equal priority are served in their order.
// The caller receives a token from the ticket's turn, writes, and calls release; or it calls cancel
// without receiving.
func (w *writerQueue) enqueue(priority int32) *ticket {
	p := w.tickets.Get().(*ticket)
	p.priority = priority
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.busy || w.yielding && w.precedes(priority) {
		w.busy, w.yielding = true, false
		p.turn <- struct{}{}
		return p
	}
	// Insert behind all tickets of at least this priority, so that equal priorities keep their
	// order.
	at := len(w.waiting)
	for at > 0 && w.waiting[at-1].priority < priority {
		at--
	}
	w.waiting = slices.Insert(w.waiting, at, p)
	return p
}

// precedes reports whether a priority is higher than the priorities of all waiting writers.
func (w *writerQueue) precedes(priority int32) bool {
	return len(w.waiting) == 0 || w.waiting[0].priority < priority
}

// release gives up the ticket of a writer that has written.
func (w *writerQueue) release(p *ticket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) > 0 && w.precedes(p.priority) {
		w.yielding = true
		w.afterYield(w.endYield)
	} else {
		w.next()
	}
	w.tickets.Put(p)
}

// endYield lets the next waiting writer write, unless a writer of a higher priority has come
// meanwhile.
func (w *writerQueue) endYield() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.yielding {
		w.yielding = false
		w.next()
	}
}

// cancel gives up the ticket of a writer that does not wait for its turn any more. The turn may
// have come meanwhile.
func (w *writerQueue) cancel(p *ticket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := slices.Index(w.waiting, p); at >= 0 {
		w.waiting = slices.Delete(w.waiting, at, at+1)
	} else {
		<-p.turn
		w.next()
	}
	w.tickets.Put(p)
}

// next lets the next waiting writer write. The caller holds the lock.
func (w *writerQueue) next() {
	if len(w.waiting) == 0 {
		w.busy = false
		return
	}
	p := w.waiting[0]
	w.waiting = slices.Delete(w.waiting, 0, 1)
	p.turn <- struct{}{}
}
