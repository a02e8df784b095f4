package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/event"
)

// ErrLauncher: the launcher died or told this peer to give up.
var ErrLauncher = errors.New("launcher ended the job")

const (
	eventQueue   = 1024                   // events that wait for the launcher
	emitPatience = 100 * time.Millisecond // for a place in the queue
	// orphanPeriod is what a program has to end after its launcher died. With the time to
	// notice it stays below two seconds.
	orphanPeriod = 1500 * time.Millisecond
)

// agent is a peer's connection with its launcher: the Sink of its events and the
// watch for the launcher's death. Two goroutines:
//
//	read    the launcher's answer to hello, then nothing until the launcher dies, which
//	        ends gone and arms the exit. It lives as long as the process: a program that
//	        closes its group after an error and then hangs must end, too
//	write   from hello on: the events in queue. Close waits for it
//
// Emit never writes itself, so that a slow launcher does not hold up a training
// step, and the writer never waits for the reader.
type agent struct {
	pipe *pipe
	exit func(int) // os.Exit, but for tests

	answer chan message // the launcher's answer to hello, at most one
	queue  chan json.RawMessage
	closed chan struct{}      // Close was called
	gone   context.Context    // ends when the launcher is gone
	lose   context.CancelFunc // ends gone
	once   sync.Once          // for Close
	work   sync.WaitGroup     // the writer

	// mu guards what Emit changes and the control socket reads.
	mu      sync.Mutex
	reducer *reducer // nil until the peer knows itself
}

// openAgent takes over descriptor fd, which children of this process do not
// inherit from then on.
func openAgent(fd int) (*agent, error) {
	// Looked at before it is touched: where it is not ours it belongs to somebody else in
	// this process.
	if addr, err := syscall.Getsockname(fd); err != nil || !isUnix(addr) {
		return nil, fmt.Errorf("launch: %s=%d is not a socket to a launcher (Init called twice, or by a child of a peer?): %w",
			envFD, fd, cmp.Or(err, error(syscall.ENOTSOCK)))
	}
	f := os.NewFile(uintptr(fd), "launcher")
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("launch: open %s=%d: %w", envFD, fd, err)
	}
	_ = f.Close() // conn has a duplicate
	return newAgent(conn, os.Exit), nil
}

func isUnix(addr syscall.Sockaddr) bool {
	_, ok := addr.(*syscall.SockaddrUnix)
	return ok
}

func newAgent(conn net.Conn, exit func(int)) *agent {
	a := &agent{pipe: newPipe(conn), exit: exit, answer: make(chan message, 1),
		queue: make(chan json.RawMessage, eventQueue), closed: make(chan struct{})}
	a.gone, a.lose = context.WithCancel(context.Background())
	go a.read()
	return a
}

// hello tells the launcher who this peer is and waits until it names all peers.
func (a *agent) hello(ctx context.Context, job string, self elastic.Member) ([]elastic.Member, error) {
	// The events of elastic.Join, the first view among them, come after this.
	a.mu.Lock()
	a.reducer = newReducer(job, self)
	a.mu.Unlock()
	if err := a.pipe.send(message{Hello: &self}); err != nil {
		return nil, fmt.Errorf("launch: hello: %w: %w", ErrLauncher, err)
	}
	a.work.Go(a.write)
	select {
	case m := <-a.answer:
		if m.Abort != "" {
			return nil, fmt.Errorf("launch: %w: %s", ErrLauncher, m.Abort)
		}
		return m.Peers, nil
	case <-a.gone.Done():
		return nil, fmt.Errorf("launch: %w: it is gone", ErrLauncher)
	case <-ctx.Done():
		return nil, fmt.Errorf("launch: wait for the other peers: %w", context.Cause(ctx))
	}
}

// read takes what the launcher says and, when it says nothing more because it died,
// gives the program a moment to end.
func (a *agent) read() {
	for {
		m, err := a.pipe.receive()
		if err != nil {
			break
		}
		if len(m.Peers) > 0 || m.Abort != "" {
			select {
			case a.answer <- m:
			default: // a second answer is a launcher's mistake; the first one holds
			}
		}
	}
	time.AfterFunc(orphanPeriod, func() { a.exit(1) })
	a.lose()
}

// write sends events until Close, and then those that wait.
func (a *agent) write() {
	for {
		select {
		case b := <-a.queue:
			if a.pipe.send(message{Event: b}) != nil {
				a.lose()
				return
			}
			continue
		case <-a.gone.Done():
			return
		case <-a.closed:
		}
		a.flush()
		return
	}
}

// flush sends the events that wait now.
func (a *agent) flush() {
	for {
		select {
		case b := <-a.queue:
			if a.pipe.send(message{Event: b}) != nil {
				return
			}
		default:
			return
		}
	}
}

// Emit implements event.Sink. An event is lost when the launcher has not kept up with
// eventQueue of them for emitPatience, or is gone.
func (a *agent) Emit(e event.Event) {
	a.mu.Lock()
	if a.reducer != nil {
		a.reducer.apply(e)
	}
	a.mu.Unlock()
	b, err := json.Marshal(e)
	if err != nil {
		return // a number that JSON does not know
	}
	select {
	case a.queue <- b:
		return
	default:
	}
	patience := time.NewTimer(emitPatience)
	defer patience.Stop()
	select {
	case a.queue <- b:
	case <-patience.C:
	case <-a.gone.Done():
	case <-a.closed:
	}
}

// status is what the control socket reports.
func (a *agent) status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reducer == nil {
		return Status{}
	}
	return a.reducer.report()
}

// Close sends the events that wait. Later ones are dropped. The connection stays open for
// the watch.
func (a *agent) Close() error {
	a.once.Do(func() {
		close(a.closed)
		a.work.Wait()
	})
	return nil
}
