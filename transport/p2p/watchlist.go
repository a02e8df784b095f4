package p2p

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/elrun/elrun/transport/internal/direct"
)

const (
	// compareFirst is the initial pause between two comparisons of a peer's addresses, and the
	// pause while one of the addresses does not answer. Each comparison that changes nothing
	// doubles the pause, up to compareLast.
	compareFirst = time.Second
	compareLast  = 30 * time.Second
	// retryFirst is the pause before the first attempt to replace a fallback stream by a direct
	// connection. Each attempt doubles the pause for the peer, up to retryLast, until there is a
	// direct connection.
	retryFirst = 5 * time.Second
	retryLast  = time.Minute
	// fasterNow is the factor by which another address must be faster to be taken at once, and
	// fasterTwice the factor at which it is taken after two comparisons in a row (hysteresis).
	fasterNow   = 4
	fasterTwice = 1.5
)

// watchList has the direct connections and the fallback streams of a host that the watch checks.
// All methods are safe for concurrent use. An entry is added when the two sides have chosen a data
// stream, and removed when the connection or the stream ends. The pauses outlive the entries, so
// that a new fallback stream with the same peer does not begin with frequent attempts again.
type watchList struct {
	wake chan struct{} // capacity 1; receives a value when an entry was added

	// mu guards the fields below.
	mu        sync.Mutex
	watched   map[*direct.Conn]*watched
	fallbacks map[*fallback]time.Time   // fallback streams, and the time of the next attempt to replace each
	pauses    map[peer.ID]time.Duration // next pause between such attempts, over all streams of a peer
}

// watched is a monitored connection and its state. The goroutine that holds watch.comparing owns
// the fields from arrived on.
type watched struct {
	conn    *direct.Conn
	id      peer.ID
	changed atomic.Bool // this host's addresses have changed: the next comparison is due at once

	arrived uint64        // Progress.Arrived at the last comparison, in bytes
	busy    time.Duration // Progress.Busy at the last comparison
	next    time.Time     // time of the next comparison
	pause   time.Duration // pause between the last comparison and the next
	faster  bool          // the last comparison found a faster address
}

// newWatchList returns a list without connections.
func newWatchList() *watchList {
	return &watchList{wake: make(chan struct{}, 1), watched: make(map[*direct.Conn]*watched),
		fallbacks: make(map[*fallback]time.Time), pauses: make(map[peer.ID]time.Duration)}
}

// addFallback adds a fallback stream, which the watch tries to replace until the stream ends.
func (w *watchList) addFallback(s *fallback) {
	w.mu.Lock()
	w.fallbacks[s] = time.Now().Add(max(retryFirst, w.pauses[s.Conn().RemotePeer()]))
	w.mu.Unlock()
	w.start()
}

// start wakes the goroutine of the watch.
func (w *watchList) start() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// empty reports whether there are neither connections nor fallback streams, so that the watch may
// sleep.
func (w *watchList) empty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watched)+len(w.fallbacks) == 0
}

// due returns the fallback streams whose next attempt is due, and doubles their pauses.
func (w *watchList) due(now time.Time) (due []*fallback) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s, next := range w.fallbacks {
		if now.Before(next) {
			continue
		}
		id := s.Conn().RemotePeer()
		w.pauses[id] = min(2*max(w.pauses[id], retryFirst), retryLast)
		w.fallbacks[s] = now.Add(w.pauses[id])
		due = append(due, s)
	}
	return due
}

// add monitors a direct TCP connection from now until it ends. It also resets the pauses of the
// peer: a direct connection works again.
func (w *watchList) add(c *direct.Conn, id peer.ID) {
	if local, _ := c.Ends(); !local.IsValid() {
		return // Unix sockets need no watch
	}
	w.mu.Lock()
	delete(w.pauses, id)
	c.OnEnd(func() { w.drop(c) })
	w.watched[c] = &watched{conn: c, id: id, pause: compareFirst, next: time.Now().Add(compareFirst)}
	w.mu.Unlock()
	w.start()
}

// drop removes a connection that ends.
func (w *watchList) drop(c *direct.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.watched, c)
}

// dropFallback removes a fallback stream that ends.
func (w *watchList) dropFallback(s *fallback) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.fallbacks, s)
}

// all returns the monitored connections.
func (w *watchList) all() []*watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*watched
	for _, one := range w.watched {
		all = append(all, one)
	}
	return all
}

// shouldChange decides after a comparison whether to change from address now to address best, both
// indices of all. It also sets the time of the next comparison.
func (one *watched) shouldChange(all []direct.Surveyed, now, best int) bool {
	failed := slices.ContainsFunc(all, func(s direct.Surveyed) bool { return s.Err != nil })
	// One measurement may be disturbed by other traffic, so a small gain must be found twice in a
	// row.
	before := one.faster
	one.faster = all[best].Speed.Clearly(all[now].Speed, fasterTwice)
	if failed || one.faster {
		one.pause = compareFirst
	} else {
		one.pause = min(2*one.pause, compareLast)
	}
	one.next = time.Now().Add(one.pause)
	return one.faster && (before || all[best].Speed.Clearly(all[now].Speed, fasterNow))
}
