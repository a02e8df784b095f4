package mesh

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
)

// lifetime is the time from New to Close of a mesh. All parts of the mesh share it: it tells them
// that the mesh closes, and counts their goroutines, for which Close waits.
type lifetime struct {
	ctx    context.Context // ends with the lifetime
	cancel context.CancelFunc

	mu      sync.Mutex     // held where working grows and where ctx ends, so working does not grow after that
	working sync.WaitGroup // goroutines of the mesh
}

// newLifetime returns a lifetime that has begun.
func newLifetime() *lifetime {
	l := new(lifetime)
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// begin counts one more goroutine, which must call working.Done. It returns false if the lifetime
// is over.
func (l *lifetime) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isOver() {
		return false
	}
	l.working.Add(1)
	return true
}

// run calls f in a goroutine of its own. It does nothing if the lifetime is over.
func (l *lifetime) run(f func()) {
	if !l.begin() {
		return
	}
	go func() {
		defer l.working.Done()
		f()
	}()
}

// isOver reports whether end was called.
func (l *lifetime) isOver() bool { return l.ctx.Err() != nil }

// end ends the lifetime. It returns false if the lifetime was over before. Then the caller ends all
// streams, so that no goroutine waits for a peer, and waits for working.
func (l *lifetime) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !l.isOver()
	l.cancel()
	return first
}

// The pauses between attempts to reach a peer: each is twice as long as the last, up to lastPause.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// retry calls f until it succeeds, its error is final (isFinal), the lifetime is over, or ctx ends.
// The first call may fail because this peer was not introduced to the other peer yet: the other
// peer then ends the stream, and will accept a later one.
func (l *lifetime) retry(ctx context.Context, f func() error) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := f()
		if err == nil || isFinal(err) {
			return err
		}
		if err := l.pause(ctx, pause, err); err != nil {
			return err
		}
	}
}

// pause waits for d after an attempt that failed with the error last. It returns an error if the
// wait was cut short: the error of a closed mesh, or the cause of ctx along with last, as the end
// of ctx alone would not tell a user why the peer was not reached.
func (l *lifetime) pause(ctx context.Context, d time.Duration, last error) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.ctx.Done():
		return errClosed()
	case <-ctx.Done():
		return fmt.Errorf("%w (%w)", context.Cause(ctx), last)
	case <-timer.C:
		return nil
	}
}

// errClosed returns the error of calls of a mesh that is closed.
func errClosed() error { return fmt.Errorf("%w: host closed", transport.ErrClosed) }

// final marks an error after which it is useless to try again: the peer has answered, and would
// give the same answer again. Errors of a network are not final.
type final struct{ error }

// Unwrap returns the error itself.
func (f final) Unwrap() error { return f.error }

// isFinal reports whether it is useless to try again after err.
func isFinal(err error) bool {
	return errors.As(err, new(final)) || errors.Is(err, elastic.ErrGone) || errors.Is(err, ErrBanned) ||
		errors.Is(err, ErrBadID)
}
