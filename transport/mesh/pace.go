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

// maxQueueing is how much longer than the fastest piece a piece may take before the window
// shrinks. About that long an answer may delay a message of Control.
const maxQueueing = 20 * time.Millisecond

// pacer is the congestion control of an answer: it decides how many bytes may be under way. All
// streams between two hosts may share one connection, in which later bytes wait for earlier ones. So an
// answer must not fill the buffers of a link that is slower than its sender. The pacer measures the
// time until each piece is acknowledged. While this time is close to the least one so far, no queue
// has built up, and the window grows by the size of the piece. Otherwise the window shrinks, at most
// once per round trip. It also shrinks if other traffic fills the link: an answer gives way to the
// training.
type pacer struct {
	mu       sync.Mutex
	window   int
	least    time.Duration
	flight   []flying // oldest first
	bytes    int      // of flight
	shrunkAt time.Time
	room     chan struct{} // gets a token when there may be room again
}

// flying is a piece that is not acknowledged yet.
type flying struct {
	size int
	sent time.Time
}

// newPacer returns the pacer of one answer.
func newPacer() *pacer { return &pacer{window: firstWindow, room: make(chan struct{}, 1)} }

// take returns true if the window has room for a piece of size bytes, and counts it as sent at the
// time now. There is always room for one piece.
func (p *pacer) take(size int, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bytes > 0 && p.bytes+size > p.window {
		return false
	}
	p.flight = append(p.flight, flying{size, now})
	p.bytes += size
	return true
}

// acknowledge notes that the peer has read the oldest piece that was under way. It returns false if
// there was none.
func (p *pacer) acknowledge(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.flight) == 0 {
		return false
	}
	first := p.flight[0]
	p.flight = p.flight[1:]
	p.bytes -= first.size
	took := now.Sub(first.sent)
	if p.least == 0 || took < p.least {
		p.least = took
	}
	switch {
	case took < p.least+maxQueueing:
		p.window = min(p.window+first.size, maxWindow)
	case first.sent.After(p.shrunkAt):
		// Pieces that were sent before the last shrink are not counted: they met the old window.
		p.window = max(p.window/2, minWindow)
		p.shrunkAt = now
	}
	select {
	case p.room <- struct{}{}:
	default:
	}
	return true
}
