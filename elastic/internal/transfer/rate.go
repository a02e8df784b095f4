package transfer

import (
	"context"
	"io"
	"sync"
	"time"
)

const (
	// piece is how much is written at once at most: between two pieces other requests get their
	// turn, and leases are renewed.
	piece = 64 << 10
	// burst is how much time may be made up for after timers that fired late.
	burst = 20 * time.Millisecond
)

// bucket limits the bytes a second over all its users. They are served in the order in
// which they come.
type bucket struct {
	rate int64 // bytes a second; 0: no limit

	mu   sync.Mutex
	next time.Time // when the next piece may go
}

// piece returns how many bytes go at once: at low rates so few that no joiner waits long
// for the next.
func (b *bucket) piece() int {
	if b.rate <= 0 {
		return piece
	}
	return int(min(piece, max(1<<10, b.rate/16)))
}

// take waits until n bytes may go, or for ctx's end.
func (b *bucket) take(ctx context.Context, n int) error {
	if b.rate <= 0 {
		return ctx.Err()
	}
	return pause(ctx, b.reserve(n))
}

// reserve returns how long to wait before n bytes may go.
func (b *bucket) reserve(n int) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if earliest := now.Add(-burst); b.next.Before(earliest) {
		b.next = earliest
	}
	wait := b.next.Sub(now)
	b.next = b.next.Add(time.Duration(float64(n) / float64(b.rate) * float64(time.Second)))
	return wait
}

// pause waits for a time or for ctx's end, of which it returns the error.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pacedWriter hands bytes on at the pace of a bucket.
type pacedWriter struct {
	ctx    context.Context // of the request that is answered
	w      io.Writer
	bucket *bucket
	sent   func() // after each piece
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
