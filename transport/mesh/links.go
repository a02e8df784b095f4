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
	// maxWaiting bounds the messages of one peer that wait for the reader of Events, in bytes; one
	// message may exceed it. So a peer that sends faster than its messages are read cannot fill
	// memory, nor the queue that all peers share.
	maxWaiting = 256 << 10
)

// links counts the control streams per peer and puts their events into one
// order. A peer is up from the beginning of its first stream to the end of its last.
type links struct {
	onDown func(elastic.ID) // told of each PeerDown, without locks held
	out    chan elastic.PeerEvent
	gone   chan struct{} // closed by stop
	pump   sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond         // queue or stopped
	open    map[elastic.ID]int // the number of streams
	queue   []elastic.PeerEvent
	waiting map[elastic.ID]int  // bytes of messages that the reader of Events has not got
	met     map[elastic.ID]bool // the peers that had a stream or were in a view with this one
	stopped bool
}

// newLinks starts the goroutine that delivers the events; stop ends it.
func newLinks(onDown func(elastic.ID)) *links {
	l := &links{onDown: onDown, out: make(chan elastic.PeerEvent), gone: make(chan struct{}),
		open: make(map[elastic.ID]int), waiting: make(map[elastic.ID]int), met: make(map[elastic.ID]bool)}
	l.changed = sync.NewCond(&l.mu)
	l.pump.Go(l.run)
	return l
}

// up counts one more stream with id.
func (l *links) up(id elastic.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.met[id] = true
	if l.open[id]++; l.open[id] == 1 {
		l.pushLocked(elastic.PeerEvent{Peer: id, Kind: elastic.PeerUp})
	}
}

// meet notes that all members of v have been reached, and forgets peers that are neither members nor up.
func (l *links) meet(v elastic.View) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.met, func(id elastic.ID, _ bool) bool { return l.open[id] == 0 })
	for _, m := range v.Members {
		l.met[m.ID] = true
	}
}

// seen reports whether a peer is up, and whether it has been reached before.
func (l *links) seen(id elastic.ID) (up, met bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open[id] > 0, l.met[id]
}

// down counts one stream of id less; that stream ended with err.
func (l *links) down(id elastic.ID, err error) {
	l.mu.Lock()
	l.open[id]--
	last := l.open[id] == 0
	if last {
		delete(l.open, id)
		l.pushLocked(elastic.PeerEvent{Peer: id, Kind: elastic.PeerDown, Err: err})
	}
	l.mu.Unlock()
	if last {
		l.onDown(id)
	}
}

// message queues a message. Before that it waits while the queue is full, or the peer's part of it.
func (l *links) message(id elastic.ID, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for (len(l.queue) >= maxEvents || l.waiting[id] > maxWaiting) && !l.stopped {
		l.changed.Wait()
	}
	l.waiting[id] += cost(data)
	l.pushLocked(elastic.PeerEvent{Peer: id, Kind: elastic.PeerMessage, Data: data})
}

// pushLocked queues an event. Ups and downs never wait, as few can pile up.
func (l *links) pushLocked(e elastic.PeerEvent) {
	l.queue = append(l.queue, e)
	l.changed.Broadcast()
}

// cost is how much a message counts against maxWaiting, in bytes: its length, and an overhead for the
// memory around it.
func cost(data []byte) int { return len(data) + 4<<10 }

// handed notes that the reader of Events has got e.
func (l *links) handed(e elastic.PeerEvent) {
	if e.Kind != elastic.PeerMessage {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[e.Peer] -= cost(e.Data); l.waiting[e.Peer] <= 0 {
		delete(l.waiting, e.Peer)
	}
	l.changed.Broadcast()
}

// run delivers the queued events to the reader of Events.
func (l *links) run() {
	defer close(l.out)
	for {
		batch := l.take()
		if batch == nil {
			return
		}
		for _, e := range batch {
			select {
			case l.out <- e:
				l.handed(e)
			case <-l.gone:
				return
			}
		}
	}
}

// take waits for events, and returns nil after stop.
func (l *links) take() []elastic.PeerEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 && !l.stopped {
		l.changed.Wait()
	}
	if l.stopped {
		return nil
	}
	batch := l.queue
	l.queue = nil
	l.changed.Broadcast()
	return batch
}

// stop drops the events that nobody has read, and closes the channel of events.
func (l *links) stop() {
	l.mu.Lock()
	l.stopped = true
	l.changed.Broadcast()
	l.mu.Unlock()
	close(l.gone)
	l.pump.Wait()
}
