package mesh

import (
	"sync"
	"sync/atomic"
)

// Bytes are counts of bytes of frames, with their headers.
type Bytes struct{ Sent, Received int64 }

// Traffic returns the bytes of the frames of views since the start, by kind of path (event.Path.Kind).
// Bytes in memory that processes share are not in it.
func (m *Mesh) Traffic() map[string]Bytes { return m.lanes.traffic.bytes() }

// traffic counts the bytes of the frames of a process, by kind of path. It is safe for concurrent use.
type traffic struct {
	mu    sync.Mutex
	kinds map[string]*byteCounter
}

// byteCounter counts the bytes of a kind of path.
type byteCounter struct{ sent, received atomic.Int64 }

// of returns the byteCounter of a kind of path.
func (t *traffic) of(kind string) *byteCounter {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kinds == nil {
		t.kinds = make(map[string]*byteCounter)
	}
	c := t.kinds[kind]
	if c == nil {
		c = new(byteCounter)
		t.kinds[kind] = c
	}
	return c
}

// bytes returns the counts.
func (t *traffic) bytes() map[string]Bytes {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[string]Bytes, len(t.kinds))
	for kind, c := range t.kinds {
		all[kind] = Bytes{c.sent.Load(), c.received.Load()}
	}
	return all
}
