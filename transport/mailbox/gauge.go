package mailbox

import (
	"io"
	"sync"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

const (
	// GaugeLeast is the shortest payload that tells the pace of a link, in bytes: of a
	// shorter one most may be there when its header is.
	GaugeLeast = 32 << 10
	// gaugeLead is how much of a long payload does not count, in bytes, with what comes
	// together with it. It may come at once on a slow link, too: as one packet of the
	// sender's offload, or on the credit that a shaper gives after a pause. It is less than
	// a frame of a muxer, which comes as a whole.
	gaugeLead = 60 << 10
	// GaugeLong is the shortest payload of which the lead does not count, in bytes.
	GaugeLong = 2 * gaugeLead
)

// Gauge measures the pace at which a rank's messages come in, for transport.Meter. It
// must be the reader of the stream that uses it. The zero value is ready.
type Gauge struct {
	mu  sync.Mutex
	sum transport.Arrival
}

// Fill reads the payload of a message, whose header was read just before, into buf.
func (g *Gauge) Fill(stream io.Reader, buf []byte) error {
	return g.time(len(buf), func(first, end int) error {
		_, err := io.ReadFull(stream, buf[first:end])
		return err
	})
}

// Skip is Fill for a payload of n bytes that is thrown away.
func (g *Gauge) Skip(stream io.Reader, n int) error {
	return g.time(n, func(first, end int) error {
		_, err := io.CopyN(io.Discard, stream, int64(end-first))
		return err
	})
}

// time takes the time of reading n bytes, without the lead of a long payload.
func (g *Gauge) time(n int, read func(first, end int) error) error {
	lead := 0
	if n >= GaugeLong {
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

// add counts what has come, if it is enough.
func (g *Gauge) add(bytes int, took time.Duration) {
	if bytes < GaugeLeast {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sum.Bytes += int64(bytes)
	g.sum.Time += took
}

// Take returns what has come since the last Take.
func (g *Gauge) Take() transport.Arrival {
	g.mu.Lock()
	defer g.mu.Unlock()
	sum := g.sum
	g.sum = transport.Arrival{}
	return sum
}
