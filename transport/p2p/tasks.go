package p2p

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/elrun/elrun/collective/transport"
)

// tasks is the lifetime of a host, and counts the goroutines for which Close waits: handlers of
// streams, and background work. All methods are safe for concurrent use.
//
// A host closes in four steps: stop is called; the sockets and connections are closed; wait
// returns; Close returns. So a task that Close interrupts needs no timeout: it waits on life, or on
// a stream whose connection the second step closes.
type tasks struct {
	// life is the parent of all work for which no caller waits. stop cancels it.
	life    context.Context
	cancel  context.CancelFunc
	working sync.WaitGroup // one for each begin that returned true

	mu      sync.Mutex // orders begin and stop, so that no task is added while wait runs
	stopped bool
}

// newTasks returns the lifetime of a host that has just begun.
func newTasks() *tasks {
	t := new(tasks)
	t.life, t.cancel = context.WithCancel(context.Background())
	return t
}

// begin counts a task; false if the host is closed. After true the caller must call end. A
// sync.WaitGroup forbids a concurrent call of Wait and of the Add that leaves zero. Once stopped is
// set begin calls no Add, and Wait runs only afterwards.
func (t *tasks) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return false
	}
	t.working.Add(1)
	return true
}

// end marks a task that begin has counted as ended.
func (t *tasks) end() { t.working.Done() }

// run calls f in a goroutine of its own. It returns false, without a call of f, if the host is
// closed. A caller that holds resources for f releases them after false.
func (t *tasks) run(f func()) bool {
	if !t.begin() {
		return false
	}
	go func() {
		defer t.end()
		f()
	}()
	return true
}

// handle returns a stream handler that calls f as a task. It resets the streams that arrive after
// the host was closed.
func (t *tasks) handle(f func(network.Stream)) network.StreamHandler {
	return func(s network.Stream) {
		if !t.begin() {
			_ = s.Reset() // the connection is about to close
			return
		}
		defer t.end()
		f(s)
	}
}

// closed returns the channel that is closed with the host.
func (t *tasks) closed() <-chan struct{} { return t.life.Done() }

// pause waits for d between two attempts. It returns errHostClosed if the host closes. If ctx ends
// it returns the cause of ctx with last, the error of the previous attempt.
func (t *tasks) pause(ctx context.Context, d time.Duration, last error) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-t.closed():
		return errHostClosed
	case <-ctx.Done():
		return fmt.Errorf("%w (%w)", context.Cause(ctx), last)
	case <-timer.C:
		return nil
	}
}

// errHostClosed is the error of attempts to reach a peer when the host closes.
var errHostClosed = fmt.Errorf("%w: host closed", transport.ErrClosed)

// stop prevents the start of further tasks, and cancels life, the context of the running tasks.
func (t *tasks) stop() {
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	t.cancel()
}

// wait returns when all tasks have ended. The caller has called stop before, and has closed every
// socket and connection on which a task may wait.
func (t *tasks) wait() { t.working.Wait() }

// final marks an error after which retry stops.
type final struct{ error }

// Unwrap returns the marked error.
func (f final) Unwrap() error { return f.error }
