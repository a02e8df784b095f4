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

// maxQueueing is how much longer than at best a piece may take before the window
// shrinks: about the most by which an answer holds up a message of Control.
const maxQueueing = 20 * time.Millisecond

// pacer decides how much of an answer may be under way. Everything between two hosts
// shares one connection, in which bytes wait for those before them; so an answer must
// not fill the buffers of a link that is slower than its sender. The pacer watches how
// long pieces take until they are acknowledged: as long as that is close to the least
// it has seen, no queue has built up, and the window grows by each piece; otherwise it
// shrinks, at most once per round trip. Traffic of others that fills the link makes it
// shrink, too: an answer gives way to the training.
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

// take notes that a piece of that size is sent at now, and reports true, if the window
// has room for it; one piece always fits.
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

// acknowledge notes that the oldest piece has been taken in. It reports false if none was
// under way.
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
		// What was sent before the last time could not know of it.
		p.window = max(p.window/2, minWindow)
		p.shrunkAt = now
	}
	select {
	case p.room <- struct{}{}:
	default:
	}
	return true
}
