package elastic

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic/internal/transfer"
)

// networkSource implements transfer.Source with requests over a Network.
type networkSource struct{ network Network }

// Request implements transfer.Source.
func (n networkSource) Request(ctx context.Context, donor string, request []byte) (io.ReadCloser, error) {
	return n.network.Request(ctx, ID(donor), append([]byte{byte(requestTransfer)}, request...))
}

// leastMeasured is the number of received bytes from which on the rate describes the network: the
// first bytes come from buffers, faster than the network.
const leastMeasured = 1 << 20

// rated measures the rate at which the answers of a Source arrive, to estimate the bandwidth to
// this peer. Concurrent streams share the path, so the rate is taken over the time in which at
// least one stream runs. A donor's time before its first byte does not count.
type rated struct {
	transfer.Source

	// mu guards the fields below.
	mu      sync.Mutex
	running int           // number of running streams
	since   time.Time     // when the first of the running streams began
	busy    time.Duration // time with at least one running stream, up to since
	bytes   int64         // number of bytes received while streams ran
}

// Request implements transfer.Source.
func (r *rated) Request(ctx context.Context, donor string, request []byte) (io.ReadCloser, error) {
	answer, err := r.Source.Request(ctx, donor, request)
	if err != nil {
		return nil, err
	}
	return &ratedAnswer{ReadCloser: answer, r: r}, nil
}

// ratedAnswer is one stream of a rated source. Like any reader it is not safe for concurrent use.
type ratedAnswer struct {
	io.ReadCloser
	r     *rated
	begun bool
	ended bool
}

// Read implements io.Reader.
func (r *ratedAnswer) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	if r.ended {
		return n, err
	}
	if r.begun {
		r.r.count(n)
	} else if n > 0 {
		r.begun = true // the first read does not count: when its bytes began to arrive is unknown
		r.r.run(1)
	}
	if err != nil {
		r.end()
	}
	return n, err
}

// Close implements io.Closer.
func (r *ratedAnswer) Close() error {
	r.end()
	return r.ReadCloser.Close()
}

// end records the end of the stream, once.
func (r *ratedAnswer) end() {
	if r.begun && !r.ended {
		r.r.run(-1)
	}
	r.ended = true
}

// count adds received bytes.
func (r *rated) count(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes += int64(n)
}

// run records that a stream has begun (1) or ended (-1).
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

// rate returns the measured rate in bytes a second; 0 if it is unknown.
func (r *rated) rate() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes < leastMeasured || r.busy <= 0 {
		return 0
	}
	return int64(float64(r.bytes) / r.busy.Seconds())
}
