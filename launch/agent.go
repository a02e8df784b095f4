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
	"github.com/elrun/elrun/event"
)

// ErrLauncher: the launcher died or told this peer to give up.
var ErrLauncher = errors.New("launcher ended the job")

const (
	mostAnswers = 4 // that wait: the answer to hello and orders after it
	// emitPatience is how long Emit lets the writer go first, where the launcher keeps up.
	emitPatience = 10 * time.Millisecond
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
//	write   the messages of the outbox, until Close and as long as the launcher lives
//
// Only the end of the socket says that the launcher is dead. One that does not read, since
// it is stopped or its own output is stuck, holds up nobody: its messages wait in the
// outbox, which drops and counts some when there are too many. Close does wait for such a
// launcher, as the job's result is what is written last.
//
// Emit never writes itself. But it lets the writer go first: an event that the launcher's
// socket has outlives this process, and on its only processor the writer's turn could come
// many steps later.
type agent struct {
	pipe *pipe
	exit func(int) // os.Exit, but for tests

	answer chan message // the launcher's answer to hello, and orders until watchOrders
	out    *outbox
	gone   context.Context    // ends when the launcher is gone
	lose   context.CancelFunc // ends gone
	work   sync.WaitGroup     // the writer

	scaling chan struct{} // has a place for the one scale request that waits
	scaled  chan scaleResult

	// mu guards what Emit and the reader change, and the control socket reads.
	mu          sync.Mutex
	reducer     *reducer // nil until the peer knows itself
	seq         int      // of the latest scale request
	dead        []elastic.ID
	onDead      func(elastic.ID)      // nil until there is a group to be told
	onOrder     func(message)         // the same
	onDirectory func(directoryUpdate) // nil unless the process is one of a Program
	onFound     func(elastic.Member)  // nil in tests
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
	a := &agent{pipe: newPipe(conn), exit: exit, answer: make(chan message, mostAnswers),
		scaling: make(chan struct{}, 1), scaled: make(chan scaleResult, 1)}
	a.out = newOutbox(a.dropped)
	a.gone, a.lose = context.WithCancel(context.Background())
	go a.read()
	a.work.Go(func() { a.out.run(a.pipe.write) })
	return a
}

// hello tells the launcher who this peer is and waits until it says how to join.
func (a *agent) hello(ctx context.Context, job string, self elastic.Member) (startOrder, error) {
	// The events of elastic.Join, the first view among them, come after this.
	a.mu.Lock()
	a.reducer = newReducer(job, self)
	a.mu.Unlock()
	a.post(message{Hello: &self}, result)
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
	a.post(message{Renew: &self}, result)
}

// suspect tells the launcher of a member that has been silent. It does not block.
func (a *agent) suspect(id elastic.ID) {
	if line, err := (message{Suspect: id}).encode(); err == nil {
		a.out.add(line, transient)
	}
}

// scale asks the launcher for so many peers on a host, or in all if it has no name, and
// returns what it does about that.
func (a *agent) scale(ctx context.Context, h Host) (string, error) {
	select {
	case a.scaling <- struct{}{}:
		defer func() { <-a.scaling }()
	case <-ctx.Done():
		return "", errors.New("elrun is busy with another such request")
	}
	a.mu.Lock()
	a.seq++
	order := scaleOrder{Seq: a.seq, Peers: h.Slots, Host: h.Name}
	a.mu.Unlock()
	if a.gone.Err() != nil {
		return "", errNoLauncher
	}
	a.post(message{Scale: &order}, history)
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

// describe tells the launcher which program this process is of, and lets learn know of its services.
func (a *agent) describe(info programInfo, learn func(directoryUpdate)) {
	a.mu.Lock()
	a.onDirectory = learn
	a.mu.Unlock()
	a.post(message{Program: &info}, result)
}

// watchFound lets f know of those who are found by the launcher from now on.
func (a *agent) watchFound(f func(elastic.Member)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.onFound = f
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
	case m.Start != nil || m.Abort != "" || m.Finished || m.Pass != nil:
		a.order(m)
	case m.Scaled != nil:
		select {
		case <-a.scaled: // nobody has waited for it
		default:
		}
		a.scaled <- *m.Scaled
	case m.Directory != nil:
		a.mu.Lock()
		learn := a.onDirectory
		a.mu.Unlock()
		if learn != nil {
			learn(*m.Directory)
		}
	case m.Found != nil:
		a.mu.Lock()
		found := a.onFound
		a.mu.Unlock()
		for _, p := range m.Found {
			if found != nil {
				found(p)
			}
		}
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
	a.post(message{Event: b}, classOf(e.Body))
}

// classOf says which events may be dropped while the launcher does not read.
func classOf(b event.Body) class {
	switch b.(type) {
	case event.Step, event.Stall, event.Path, event.Shares, event.Order:
		return telemetry
	case event.Done, event.Quorum:
		return result
	}
	return history
}

// dropped is the line about events that the launcher did not read in time.
func (a *agent) dropped(events int) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := event.Event{Time: time.Now(), Body: event.Dropped{Events: events}}
	if a.reducer != nil {
		e.Peer, e.Index = a.reducer.self.ID, a.reducer.self.Index
	}
	b, err := json.Marshal(e)
	if err != nil {
		return nil
	}
	line, _ := message{Event: b}.encode() // a short one
	return line
}

// post sends a message by the outbox. It returns when the socket has it, or soon where the
// launcher does not keep up.
func (a *agent) post(m message, c class) {
	line, err := m.encode()
	if err != nil {
		return
	}
	sent := a.out.add(line, c)
	if sent == nil {
		return
	}
	timer := time.NewTimer(emitPatience)
	defer timer.Stop()
	select {
	case <-sent:
	case <-timer.C:
		a.out.late()
	case <-a.gone.Done():
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

// Close sends what waits, for as long as the launcher lives. Later events are dropped. The
// connection stays open for the watch.
func (a *agent) Close() error {
	a.out.close()
	a.work.Wait()
	return nil
}
