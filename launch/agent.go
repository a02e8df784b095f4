package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
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
	sendPatience = 10 * time.Millisecond  // for the writer, where nothing waits before
	// orphanPeriod is what a program has to end after its launcher died. With the time to
	// notice it stays below two seconds.
	orphanPeriod = 1500 * time.Millisecond
)

// agent is a peer's connection with its launcher: the Sink of its events and the
// watch for the launcher's death. Two goroutines:
//
//	read    the launcher's answer to hello, then certain deaths and answers to scale,
//	        until the launcher dies, which ends gone and arms the exit. It lives as long
//	        as the process: a program that closes its group after an error and then hangs
//	        must end, too
//	write   from hello on: the messages in queue. Close waits for it
//
// Emit never writes itself, so that a slow launcher does not hold up a training step, and the
// writer never waits for the reader. But it lets the writer go first: an event that the
// launcher's socket has outlives this process, and on its only processor the writer's turn
// could come many steps later.
type agent struct {
	pipe *pipe
	exit func(int) // os.Exit, but for tests

	answer chan message // the launcher's answer to hello, at most one
	queue  chan outgoing
	closed chan struct{}      // Close was called
	gone   context.Context    // ends when the launcher is gone
	lose   context.CancelFunc // ends gone
	once   sync.Once          // for Close
	work   sync.WaitGroup     // the writer

	scaling chan struct{} // has a place for the one scale request that waits
	scaled  chan scaleResult

	// mu guards what Emit and the reader change, and the control socket reads.
	mu      sync.Mutex
	reducer *reducer // nil until the peer knows itself
	seq     int      // of the latest scale request
	dead    []elastic.ID
	onDead  func(elastic.ID) // nil until there is a group to be told
}

// outgoing is a message in the queue.
type outgoing struct {
	message
	sent chan struct{} // closed when the socket has it
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
		scaling: make(chan struct{}, 1), scaled: make(chan scaleResult, 1),
		queue: make(chan outgoing, eventQueue), closed: make(chan struct{})}
	a.gone, a.lose = context.WithCancel(context.Background())
	go a.read()
	return a
}

// hello tells the launcher who this peer is and waits until it says how to join.
func (a *agent) hello(ctx context.Context, job string, self elastic.Member) (startOrder, error) {
	// The events of elastic.Join, the first view among them, come after this.
	a.mu.Lock()
	a.reducer = newReducer(job, self)
	a.mu.Unlock()
	if err := a.pipe.send(message{Hello: &self}); err != nil {
		return startOrder{}, fmt.Errorf("hello: %w: %w", ErrLauncher, err)
	}
	a.work.Go(a.write)
	select {
	case m := <-a.answer:
		if m.Abort != "" {
			return startOrder{}, fmt.Errorf("%w: %s", ErrLauncher, m.Abort)
		}
		a.mu.Lock()
		a.reducer.self.Launcher, a.reducer.self.PID = m.Start.PID, os.Getpid()
		a.mu.Unlock()
		return *m.Start, nil
	case <-a.gone.Done():
		return startOrder{}, fmt.Errorf("%w: it is gone", ErrLauncher)
	case <-ctx.Done():
		return startOrder{}, fmt.Errorf("wait for the other peers: %w", context.Cause(ctx))
	}
}

// renew tells the launcher that this peer has become self.
func (a *agent) renew(self elastic.Member) {
	a.mu.Lock()
	if a.reducer != nil {
		a.reducer.renew(self)
	}
	a.mu.Unlock()
	a.post(message{Hello: &self})
}

// suspect tells the launcher of a member that has been silent. It does not block.
func (a *agent) suspect(id elastic.ID) {
	select {
	case a.queue <- outgoing{message{Suspect: id}, make(chan struct{})}:
	default: // it will be suspected again
	}
}

// scale asks the launcher for n local peers and returns what it does about that.
func (a *agent) scale(ctx context.Context, n int) (string, error) {
	select {
	case a.scaling <- struct{}{}:
		defer func() { <-a.scaling }()
	case <-ctx.Done():
		return "", errors.New("elrun is busy with another such request")
	}
	a.mu.Lock()
	a.seq++
	order := scaleOrder{Seq: a.seq, Peers: n}
	a.mu.Unlock()
	if a.gone.Err() != nil {
		return "", errNoLauncher
	}
	a.post(message{Scale: &order})
	for {
		select {
		case r := <-a.scaled:
			switch {
			case r.Seq != order.Seq: // of somebody who did not wait for it
			case r.Error != "":
				return "", errors.New(r.Error)
			default:
				return r.Text, nil
			}
		case <-a.gone.Done():
			return "", errNoLauncher
		case <-ctx.Done():
			return "", errors.New("elrun does not answer")
		}
	}
}

// errNoLauncher: there is nobody to start or to stop peers.
var errNoLauncher = errors.New("the elrun that started these peers has ended; it takes one to start others (elrun join)")

// watchDead lets f know of all certain deaths, those of the past first.
func (a *agent) watchDead(f func(elastic.ID)) {
	a.mu.Lock()
	past := a.dead
	a.dead, a.onDead = nil, f
	a.mu.Unlock()
	for _, id := range past {
		f(id)
	}
}

// isDead reports whether the launcher has told of that death while nobody watched.
func (a *agent) isDead(id elastic.ID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.dead, id)
}

// read takes what the launcher says and, when it says nothing more because it died,
// gives the program a moment to end.
func (a *agent) read() {
	for {
		m, err := a.pipe.receive()
		if err != nil {
			break
		}
		a.hear(m)
	}
	time.AfterFunc(orphanPeriod, func() { a.exit(1) })
	a.lose()
}

// hear handles one message of the launcher.
func (a *agent) hear(m message) {
	switch {
	case m.Start != nil || m.Abort != "":
		select {
		case a.answer <- m:
		default: // a second answer is a launcher's mistake; the first one holds
		}
	case m.Scaled != nil:
		select {
		case <-a.scaled: // nobody has waited for it
		default:
		}
		a.scaled <- *m.Scaled
	case m.Dead != "":
		a.mu.Lock()
		tell := a.onDead
		if tell == nil && len(a.dead) < maxMembers {
			a.dead = append(a.dead, m.Dead)
		}
		a.mu.Unlock()
		if tell != nil {
			tell(m.Dead)
		}
	}
}

// write sends messages until Close, and then those that wait.
func (a *agent) write() {
	for {
		select {
		case m := <-a.queue:
			if a.pipe.send(m.message) != nil {
				a.lose()
				return
			}
			close(m.sent)
			continue
		case <-a.gone.Done():
			return
		case <-a.closed:
		}
		a.flush()
		return
	}
}

// flush sends the messages that wait now.
func (a *agent) flush() {
	for {
		select {
		case m := <-a.queue:
			if a.pipe.send(m.message) != nil {
				return
			}
			close(m.sent)
		default:
			return
		}
	}
}

// Emit implements event.Sink.
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
	a.post(message{Event: b})
}

// post sends a message by the queue. It returns when the socket has it, or later than that
// where the launcher does not keep up. The message is lost when that has not kept up with
// eventQueue of them for emitPatience, or is gone.
func (a *agent) post(m message) {
	o := outgoing{m, make(chan struct{})}
	behind := len(a.queue) > 0
	select {
	case a.queue <- o:
		if !behind {
			a.await(o.sent)
		}
		return
	default:
	}
	patience := time.NewTimer(emitPatience)
	defer patience.Stop()
	select {
	case a.queue <- o:
	case <-patience.C:
	case <-a.gone.Done():
	case <-a.closed:
	}
}

// await waits for the writer, for sendPatience at most.
func (a *agent) await(sent <-chan struct{}) {
	timer := time.NewTimer(sendPatience)
	defer timer.Stop()
	select {
	case <-sent:
	case <-timer.C:
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
