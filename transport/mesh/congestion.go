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
func (p *congestionWindow) reserve(size int, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inFlight > 0 && p.inFlight+size > p.size {
		return false
	}
	p.flight = append(p.flight, inFlightPiece{size, now})
	p.inFlight += size
	return true
}

// acknowledge notes that the peer has read the oldest piece that was under way. It returns false if
// there was none.
func (p *congestionWindow) acknowledge(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.flight) == 0 {
		return false
	}
	first := p.flight[0]
	p.flight = p.flight[1:]
	p.inFlight -= first.size
	took := now.Sub(first.sent)
	if p.minRTT == 0 || took < p.minRTT {
		p.minRTT = took
	}
	switch {
	case took < p.minRTT+maxQueueing:
		// Each acknowledged piece adds its size, so the window doubles per round trip, as in slow
		// start.
		p.size = min(p.size+first.size, maxWindow)
	case first.sent.After(p.shrunkAt):
		// Pieces that were sent before the last shrink are ignored: they were sent under the old
		// window.
		p.size = max(p.size/2, minWindow)
		p.shrunkAt = now
	}
	select {
	case p.room <- struct{}{}:
	default:
	}
	return true
}
