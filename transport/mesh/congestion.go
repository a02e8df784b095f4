package mesh

import (
	"sync"
	"time"
)

// The window of an answer, in bytes.
const (
	pieceSize   = 64 << 10
	minWindow   = 2 * pieceSize
	firstWindow = 4 * pieceSize
	maxWindow   = 4 << 20
)

// maxQueueing is how much longer than the fastest piece a piece may take before the window shrinks.
// An answer delays control messages on the same path by about this time at most.
const maxQueueing = 20 * time.Millisecond

// congestionWindow is the congestion control of an answer: it decides how many bytes may be in
// flight. It works by delay, as TCP Vegas does (Brakmo, Peterson 1995), and yields to other traffic
// as LEDBAT does (RFC 6817). All streams between two hosts may share one connection, in which later
// bytes wait for earlier ones. So an answer must not fill the buffers of a link that is slower than
// its sender. The window measures the time until each piece is acknowledged. While this time is
// close to the least one so far, no queue has built up, and the window grows by the size of the
// piece. Otherwise the window shrinks, at most once per round trip. It also shrinks if other
// traffic fills the link: an answer yields to the training.
type congestionWindow struct {
	// mu guards the fields below, except for room.
	mu     sync.Mutex
	size   int
	minRTT time.Duration
	flight []inFlightPiece // oldest first
	// inFlight is the number of bytes that were written and are not acknowledged.
	inFlight int
	shrunkAt time.Time
	room     chan struct{} // gets a token when there may be room again
}

// inFlightPiece is a piece that is not acknowledged yet.
type inFlightPiece struct {
	size int
	sent time.Time
}

// newCongestionWindow returns the congestion window of one answer.
func newCongestionWindow() *congestionWindow {
	return &congestionWindow{size: firstWindow, room: make(chan struct{}, 1)}
}

// reserve returns true if the window has room for a piece of size bytes, and counts it as sent at
// the time now. There is always room for one piece.
func (c *congestionWindow) reserve(size int, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inFlight > 0 && c.inFlight+size > c.size {
		return false
	}
	c.flight = append(c.flight, inFlightPiece{size, now})
	c.inFlight += size
	return true
}

// acknowledge notes that the peer has read the oldest piece that was under way. It returns false if
// there was none.
func (c *congestionWindow) acknowledge(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.flight) == 0 {
		return false
	}
	first := c.flight[0]
	c.flight = c.flight[1:]
	c.inFlight -= first.size
	took := now.Sub(first.sent)
	if c.minRTT == 0 || took < c.minRTT {
		c.minRTT = took
	}
	switch {
	case took < c.minRTT+maxQueueing:
		// Each acknowledged piece adds its size, so the window doubles per round trip, as in slow
		// start.
		c.size = min(c.size+first.size, maxWindow)
	case first.sent.After(c.shrunkAt):
		// Pieces that were sent before the last shrink are ignored: they were sent under the old
		// window.
		c.size = max(c.size/2, minWindow)
		c.shrunkAt = now
	}
	select {
	case c.room <- struct{}{}:
	default:
	}
	return true
}
