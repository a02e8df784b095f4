package elastic

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic/internal/transfer"
)

// leastMeasured is how many bytes must have come before their rate says something of the
// network: the first ones come as fast as buffers are emptied.
const leastMeasured = 1 << 20

// rated measures at which rate the answers of a Source come. Streams that run at the same
// time share the way to this peer, so that it counts the time in which at least one of
// them does. That a donor takes its time before the first byte does not count.
type rated struct {
	transfer.Source

	mu      sync.Mutex
	running int
	since   time.Time // while any is running
	busy    time.Duration
	bytes   int64
}

// Request implements transfer.Source.
func (r *rated) Request(ctx context.Context, donor string, request []byte) (io.ReadCloser, error) {
	answer, err := r.Source.Request(ctx, donor, request)
	if err != nil {
		return nil, err
	}
	return &ratedAnswer{ReadCloser: answer, r: r}, nil
}

// ratedAnswer is one stream. Like any reader it is used by one goroutine.
type ratedAnswer struct {
	io.ReadCloser
	r     *rated
	begun bool
	ended bool
}

// Read implements io.Reader.
func (a *ratedAnswer) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	if a.ended {
		return n, err
	}
	if a.begun {
		a.r.count(n)
	} else if n > 0 {
		a.begun = true // what has come by now took no time that was seen
		a.r.run(1)
	}
	if err != nil {
		a.end()
	}
	return n, err
}

// Close implements io.Closer.
func (a *ratedAnswer) Close() error {
	a.end()
	return a.ReadCloser.Close()
}

func (a *ratedAnswer) end() {
	if a.begun && !a.ended {
		a.r.run(-1)
	}
	a.ended = true
}

// count takes bytes that came.
func (r *rated) count(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes += int64(n)
}

// run notes that a stream has begun or ended.
func (r *rated) run(change int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == 0 {
		r.since = time.Now()
	}
	if r.running += change; r.running == 0 {
		r.busy += time.Since(r.since)
	}
}

// rate is bytes a second; 0 if that is not known.
func (r *rated) rate() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes < leastMeasured || r.busy <= 0 {
		return 0
	}
	return int64(float64(r.bytes) / r.busy.Seconds())
}
