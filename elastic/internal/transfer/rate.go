package transfer

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/elrun/elrun/internal/pause"
)

const (
	// piece bounds the bytes of one write: between two pieces other requests proceed, and leases
	// are renewed.
	piece = 64 << 10
	// burst bounds the unused time that a bucket may make up for, such as the delay of a late
	// timer.
	burst = 20 * time.Millisecond
)

// bucket is a token bucket: it limits the bytes per second of all its users together. The users are
// served in order of arrival.
type bucket struct {
	rate int64 // bytes a second; 0: no limit

	// mu guards the fields below.
	mu   sync.Mutex
	next time.Time // when the next piece may be sent
}

// piece returns the number of bytes to send at once. It is small at low rates, so that no newcomer
// waits long while a piece for another newcomer is sent.
func (b *bucket) piece() int {
	if b.rate <= 0 {
		return piece
	}
	return int(min(piece, max(1<<10, b.rate/16)))
}

// take waits until n bytes may be sent, or until ctx ends.
func (b *bucket) take(ctx context.Context, n int) error {
	if b.rate <= 0 {
		return ctx.Err()
	}
	return pause.For(ctx, b.reserve(n))
}

// reserve reserves the sending of n bytes, and returns the time to wait before sending them.
func (b *bucket) reserve(n int) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	// An idle bucket accumulates at most burst of sending time.
	if earliest := now.Add(-burst); b.next.Before(earliest) {
		b.next = earliest
	}
	wait := b.next.Sub(now)
	b.next = b.next.Add(time.Duration(float64(n) / float64(b.rate) * float64(time.Second)))
	return wait
}

// pacedWriter writes at the rate of a bucket.
type pacedWriter struct {
	// ctx is the context of the request that is answered.
	ctx    context.Context
	w      io.Writer
	bucket *bucket
	sent   func() // called after each piece
}

// Write implements io.Writer.
func (p *pacedWriter) Write(b []byte) (int, error) {
	var total int
	for len(b) > 0 {
		n := min(len(b), p.bucket.piece())
		if err := p.bucket.take(p.ctx, n); err != nil {
			return total, err
		}
		n, err := p.w.Write(b[:n])
		total += n
		if err != nil {
			return total, err
		}
		p.sent()
		b = b[n:]
	}
	return total, nil
}
