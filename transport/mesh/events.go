package mesh

import (
	"maps"
	"sync"

	"github.com/elrun/elrun/elastic"
)

const (
	// maxEvents is how many events may wait for the reader of Events. When as many wait, the
	// readers of control streams pause.
	maxEvents = 256
	// maxQueuedBytes bounds the messages of one peer that wait for the reader of Events, in bytes.
	// One message may exceed the bound. So a peer that sends faster than its messages are read can
	// fill neither the memory nor the queue that all peers share.
	maxQueuedBytes = 256 << 10
)

// eventQueue counts the control streams per peer, and puts the events of all peers into one order.
// A peer is up while it has at least one stream. So for each peer the reader of Events sees PeerUp,
// then messages, then PeerDown, however many streams the two have opened to each other.
type eventQueue struct {
	onDown   func(elastic.ID) // called at each PeerDown, without locks held
	out      chan elastic.PeerEvent
	stopping chan struct{} // closed by stop
	delivery sync.WaitGroup

	// mu guards the fields below.
	mu          sync.Mutex
	changed     *sync.Cond         // signals changes of queue, queuedBytes and stopped
	open        map[elastic.ID]int // the number of streams, by peer
	queue       []elastic.PeerEvent
	queuedBytes map[elastic.ID]int // bytes of messages that the reader of Events has not got
	// known has the peers that had a stream with this process, or were in a view with it.
	known   map[elastic.ID]bool
	stopped bool
}

// newEventQueue starts the goroutine that delivers the events; stop ends it.
func newEventQueue(onDown func(elastic.ID)) *eventQueue {
	l := &eventQueue{onDown: onDown, out: make(chan elastic.PeerEvent), stopping: make(chan struct{}),
		open: make(map[elastic.ID]int), queuedBytes: make(map[elastic.ID]int), known: make(map[elastic.ID]bool)}
	l.changed = sync.NewCond(&l.mu)
	l.delivery.Go(l.run)
	return l
}

// up counts one more stream with id.
func (e *eventQueue) up(id elastic.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known[id] = true
	if e.open[id]++; e.open[id] == 1 {
		e.pushLocked(elastic.PeerEvent{Peer: id, Kind: elastic.PeerUp})
	}
}

// reached notes that all members of v have been reached, and forgets peers that are neither members
// nor up.
func (e *eventQueue) reached(v elastic.View) {
	e.mu.Lock()
	defer e.mu.Unlock()
	// Without this line the set would keep every member that has ever been in the group.
	maps.DeleteFunc(e.known, func(id elastic.ID, _ bool) bool { return e.open[id] == 0 })
	for _, m := range v.Members {
		e.known[m.ID] = true
	}
}

// status reports whether a peer is up, and whether it has been reached before.
func (e *eventQueue) status(id elastic.ID) (up, met bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.open[id] > 0, e.known[id]
}

// down counts one stream of id less; that stream ended with err.
func (e *eventQueue) down(id elastic.ID, err error) {
	e.mu.Lock()
	e.open[id]--
	last := e.open[id] == 0
	if last {
		delete(e.open, id)
		e.pushLocked(elastic.PeerEvent{Peer: id, Kind: elastic.PeerDown, Err: err})
	}
	e.mu.Unlock()
	// onDown takes the locks of other parts, so it is called without e.mu.
	if last {
		e.onDown(id)
	}
}

// message queues a message. It blocks while the queue is full, or while too many bytes of the peer
// are in it. Only the readers of the peer's own streams block, so a flooding peer delays itself.
func (e *eventQueue) message(id elastic.ID, data []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	// The peer notices that: its messages stay in the buffers of the connection.
	for (len(e.queue) >= maxEvents || e.queuedBytes[id] > maxQueuedBytes) && !e.stopped {
		e.changed.Wait()
	}
	e.queuedBytes[id] += queueCost(data)
	e.pushLocked(elastic.PeerEvent{Peer: id, Kind: elastic.PeerMessage, Data: data})
}

// pushLocked queues an event. PeerUp and PeerDown never wait, as a peer can cause only few of them.
func (e *eventQueue) pushLocked(event elastic.PeerEvent) {
	e.queue = append(e.queue, event)
	e.changed.Broadcast()
}

// queueCost is how much a message counts against maxQueuedBytes, in bytes: its length, and an
// overhead for the memory around it.
func queueCost(data []byte) int { return len(data) + 4<<10 }

// delivered notes that the reader of Events has got an event.
func (e *eventQueue) delivered(event elastic.PeerEvent) {
	if event.Kind != elastic.PeerMessage {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.queuedBytes[event.Peer] -= queueCost(event.Data); e.queuedBytes[event.Peer] <= 0 {
		delete(e.queuedBytes, event.Peer)
	}
	e.changed.Broadcast()
}

// run delivers the queued events to the reader of Events. It takes all queued events at once, so
// that it takes the lock once for many events.
func (e *eventQueue) run() {
	defer close(e.out)
	for {
		batch := e.next()
		if batch == nil {
			return
		}
		for _, event := range batch {
			select {
			case e.out <- event:
				e.delivered(event)
			// The other events of the batch are dropped: nobody reads the events of a closed mesh.
			case <-e.stopping:
				return
			}
		}
	}
}

// next waits for events, and returns nil after stop.
func (e *eventQueue) next() []elastic.PeerEvent {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.queue) == 0 && !e.stopped {
		e.changed.Wait()
	}
	if e.stopped {
		return nil
	}
	batch := e.queue
	e.queue = nil
	// Readers of control streams may wait for room in the queue.
	e.changed.Broadcast()
	return batch
}

// stop drops the events that nobody has read, and closes the channel of events.
func (e *eventQueue) stop() {
	e.mu.Lock()
	e.stopped = true
	e.changed.Broadcast()
	e.mu.Unlock()
	close(e.stopping)
	e.delivery.Wait()
}
