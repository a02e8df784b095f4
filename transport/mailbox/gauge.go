package mailbox

import (
	"io"
	"sync"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// Limits of the lengths of the payloads that a gauge measures.
const (
	// MinMeasured is the shortest payload that is measured, in bytes. Most of a shorter
	// payload may have arrived together with its header, so its time says nothing about the
	// link.
	MinMeasured = 32 << 10
	// gaugeLead is how many bytes at the beginning of a long payload are not measured. The
	// beginning may arrive at once on a slow link, too: as one packet of segmentation offload, or
	// on the credit that a traffic shaper accumulates during a pause. gaugeLead is less than a
	// frame of a stream multiplexer, because such a frame arrives as a whole.
	gaugeLead = 60 << 10
	// LeadFrom is the shortest payload whose lead is not measured, in bytes.
	LeadFrom = 2 * gaugeLead
)

// Gauge measures the throughput at which the messages of a rank arrive, for transport.Meter. The
// reader of the stream uses it. Any goroutine may call Reset. Only the reader may call Fill and
// Skip. The zero value is ready.
type Gauge struct {
	mu  sync.Mutex
	sum transport.Arrival // since the last Reset; guarded by mu
}

// Fill reads the payload of a message into buf, and records how long that took. The header was read
// immediately before, so the sender has begun to send and the time measures the path.
func (g *Gauge) Fill(stream io.Reader, buf []byte) error {
	return g.time(len(buf), func(first, end int) error {
		_, err := io.ReadFull(stream, buf[first:end])
		return err
	})
}

// Skip is Fill for a payload of n bytes that is discarded.
func (g *Gauge) Skip(stream io.Reader, n int) error {
	return g.time(n, func(first, end int) error {
		_, err := io.CopyN(io.Discard, stream, int64(end-first))
		return err
	})
}

// time measures the time to read n bytes, without the lead of a long payload.
func (g *Gauge) time(n int, read func(first, end int) error) error {
	lead := 0
	if n >= LeadFrom {
		lead = gaugeLead
		if err := read(0, lead); err != nil {
			return err
		}
	}
	begun := time.Now()
	if err := read(lead, n); err != nil {
		return err
	}
	g.add(n-lead, time.Since(begun))
	return nil
}

// add records a measurement unless it is too short.
func (g *Gauge) add(bytes int, took time.Duration) {
	if bytes < MinMeasured {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sum.Bytes += int64(bytes)
	g.sum.Time += took
}

// Reset returns the sum of the measurements since the last Reset.
func (g *Gauge) Reset() transport.Arrival {
	g.mu.Lock()
	defer g.mu.Unlock()
	sum := g.sum
	g.sum = transport.Arrival{}
	return sum
}
