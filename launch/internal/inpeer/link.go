package inpeer

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

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/shm"
	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// ErrLauncher reports that the launcher died or told this peer to give up.
var ErrLauncher = errors.New("launcher ended the job")

const (
	maxAnswers = 4 // capacity of Link.answer: the answer to hello and the orders after it
	// emitWait is the longest time that Emit waits for the writer.
	emitWait = 10 * time.Millisecond
	// exitDelay is the time that a program gets to end by itself after its launcher's death.
	// Together with the time to detect the death it stays below two seconds.
	exitDelay = 1500 * time.Millisecond
)

// Link is a peer's connection to its launcher: it sends events (it is a Sink) and detects the
// launcher's death. It has two goroutines:
//
//	read    receives the launcher's answer to hello, then certain deaths and answers to scale.
//	        When the launcher dies, it ends the context LauncherGone and starts the timer of the
//	        exit. This goroutine lives as long as the process: a program that closes its group after
//	        an error and then hangs must end as well
//	write   sends the messages of the outbox, until Close and while the launcher lives
//
// Only the end of the socket means that the launcher is dead. A launcher that does not read,
// because it is stopped or its own output is stuck, does not block the peer: messages to the
// launcher wait in the outbox, which drops and counts some of them when it is full. Only Close
// waits for such a launcher, because the job's result is written last.
//
// Emit does not write to the socket, but it waits up to emitWait until the writer has written the
// event: an event in the launcher's socket outlives this process. Without the wait, the writer
// might run only many steps later on a single processor.
type Link struct {
	// pipe is the socket to the launcher. Close leaves it open, so that read still detects the
	// launcher's death.
	pipe *wire.Pipe
	exit func(int) // os.Exit, replaced in tests
	// program is the process for which this one acts; nil if this process is the program.
	program *proc.Foreign

	answer       chan wire.Message // the answer to hello, and orders that arrive before watchOrders
	out          *wire.Outbox
	LauncherGone context.Context    // ends when the launcher is gone
	cancelGone   context.CancelFunc // ends LauncherGone
	work         sync.WaitGroup     // owns the writer
	word         *shm.ProcessWord   // nil before hello, or where the system has none

	scaling chan struct{} // capacity 1: one scale request waits at a time
	// scaled has capacity 1. The reader replaces an answer that no request has taken, and so never
	// blocks.
	scaled chan wire.ScaleResult
	// decisions has the answer to the last retry, in the same way.
	decisions chan wire.Decision

	// mu guards the fields that Emit and the reader change and the control socket reads.
	mu      sync.Mutex
	reducer *reducer  // nil before hello
	moved   time.Time // the last step or view; zero before
	seq     int       // sequence number of the latest request to scale, or retry
	// dead holds deaths that arrived before watchDead.
	dead        []elastic.ID
	onDead      func(elastic.ID)           // nil until there is a group to inform
	onOrder     func(wire.Message)         // nil until there is a group to inform
	onDirectory func(wire.DirectoryUpdate) // nil unless the process belongs to a Program
	onFound     func(elastic.Member)       // nil until watchFound
}

// OpenLink takes ownership of descriptor fd, the socket to the launcher. From then on child
// processes of this process do not inherit the descriptor.
func OpenLink(fd int) (*Link, error) { return openLink(fd, nil, os.Exit) }

// openLink is OpenLink for a program, which may be nil. exit ends this process after the launcher's death.
func openLink(fd int, program *proc.Foreign, exit func(int)) (*Link, error) {
	// Check the descriptor before any change to it: if it is no launcher's socket, another part of
	// this process owns it.
	if addr, err := syscall.Getsockname(fd); err != nil || !isUnix(addr) {
		return nil, fmt.Errorf("launch: %s=%d is not a socket to a launcher: a wrapper closed it (Python: close_fds=False; sudo: -C %d), or Init was called twice or by a child of a peer: %w",
			wire.EnvFD, fd, fd+1, cmp.Or(err, error(syscall.ENOTSOCK)))
	}
	f := os.NewFile(uintptr(fd), "launcher")
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("launch: open %s=%d: %w", wire.EnvFD, fd, err)
	}
	_ = f.Close() // conn has a duplicate
	a := newLink(&wire.WordConn{UnixConn: conn.(*net.UnixConn)}, exit)
	a.program = program
	return a, nil
}

// isUnix reports whether addr is the address of a Unix socket.
func isUnix(addr syscall.Sockaddr) bool {
	_, ok := addr.(*syscall.SockaddrUnix)
	return ok
}

// newLink returns a Link on conn, which it owns, and starts its two goroutines.
func newLink(conn net.Conn, exit func(int)) *Link {
	a := &Link{pipe: wire.NewPipe(conn), exit: exit, answer: make(chan wire.Message, maxAnswers),
		scaling: make(chan struct{}, 1), scaled: make(chan wire.ScaleResult, 1), decisions: make(chan wire.Decision, 1)}
	a.out = wire.NewOutbox(a.dropped)
	a.LauncherGone, a.cancelGone = context.WithCancel(context.Background())
	go a.read()
	a.work.Go(func() { a.out.Run(a.pipe.Write) })
	return a
}

// Hello registers this peer with the launcher and waits for the order that says how to join. An
// abort is an error that wraps ErrLauncher.
func (l *Link) Hello(ctx context.Context, job string, self elastic.Member) (wire.StartOrder, error) {
	// Set the reducer before the message is sent, because the events of elastic.Join, such as the
	// first view, follow the answer.
	l.mu.Lock()
	l.reducer = newReducer(job, self)
	l.mu.Unlock()
	l.passWord()
	l.greet(self)
	select {
	case m := <-l.answer:
		switch {
		case m.Finished:
			return wire.StartOrder{}, elastic.ErrFinished
		case m.Start == nil:
			return wire.StartOrder{}, fmt.Errorf("%w: %s", ErrLauncher, cmp.Or(m.Abort, "it has no job for this peer"))
		}
		l.mu.Lock()
		l.reducer.self.Launcher, l.reducer.self.PID = m.Start.PID, l.pid()
		l.mu.Unlock()
		return *m.Start, nil
	case <-l.LauncherGone.Done():
		return wire.StartOrder{}, fmt.Errorf("%w: its process has ended", ErrLauncher)
	case <-ctx.Done():
		return wire.StartOrder{}, fmt.Errorf("wait for the other peers: %w", context.Cause(ctx))
	}
}

// greet says hello.
func (l *Link) greet(self elastic.Member) {
	m := wire.Message{Hello: &self}
	if l.program != nil {
		m.For = l.program.PID
	}
	l.Post(m, wire.Result)
}

// pid returns the process that people know as the peer.
func (l *Link) pid() int {
	if l.program != nil {
		return l.program.PID
	}
	return os.Getpid()
}

// renew tells the launcher the new identity of this peer.
func (l *Link) renew(self elastic.Member) {
	l.mu.Lock()
	if l.reducer != nil {
		l.reducer.renew(self)
	}
	l.mu.Unlock()
	l.Post(wire.Message{Renew: &self}, wire.Result)
}

// refusedVersion tells the launcher that a newcomer of another version of elrun was refused.
func (l *Link) refusedVersion(err error) {
	l.Post(wire.Message{Note: wire.ClipNote("a peer that wanted to join is refused: " + inner(err))}, wire.History)
}

// suspect reports a silent member to the launcher. It does not block, and the message may be
// dropped.
func (l *Link) suspect(id elastic.ID) {
	if line, err := wire.Encode(wire.Message{Suspect: id}); err == nil {
		l.out.Add(line, wire.Transient)
	}
}

// scale asks the launcher for h.Slots peers on a host, or in the whole job if h has no name, and
// returns a description of the launcher's action.
func (l *Link) scale(ctx context.Context, h spec.Host) (string, error) {
	// One request at a time: l.scaled carries a single answer.
	select {
	case l.scaling <- struct{}{}:
		defer func() { <-l.scaling }()
	case <-ctx.Done():
		return "", errors.New("the elrun that started these peers still handles an earlier request for another number of peers: try again later")
	}
	l.mu.Lock()
	l.seq++
	order := wire.ScaleOrder{Seq: l.seq, Peers: h.Slots, Host: h.Name}
	l.mu.Unlock()
	if l.LauncherGone.Err() != nil {
		return "", errNoLauncher
	}
	l.Post(wire.Message{Scale: &order}, wire.History)
	// Sequence numbers tell the answer from late answers to requests that gave up.
	for {
		select {
		case r := <-l.scaled:
			switch {
			case r.Seq != order.Seq: // the answer to an earlier request, which gave up
			case r.Error != "":
				return "", errors.New(r.Error)
			default:
				return r.Text, nil
			}
		case <-l.LauncherGone.Done():
			return "", errNoLauncher
		case <-ctx.Done():
			return "", errors.New("the elrun that started these peers does not answer: look at elrun status before you try again")
		}
	}
}

// errNoLauncher reports that no launcher is left to start or stop peers.
var errNoLauncher = errors.New("the elrun that started these peers has ended, and only that one can change their number: start others by elrun join")

// watchDead calls f for every certain death, past deaths first.
func (l *Link) watchDead(f func(elastic.ID)) {
	l.mu.Lock()
	past := l.dead
	l.dead, l.onDead = nil, f
	l.mu.Unlock()
	for _, id := range past {
		f(id)
	}
}

// Describe tells the launcher the Program of this process, and registers the function learn, which
// gets the updates about the services of the Program.
func (l *Link) Describe(info wire.ProgramInfo, learn func(wire.DirectoryUpdate)) {
	l.mu.Lock()
	l.onDirectory = learn
	l.mu.Unlock()
	l.Post(wire.Message{Program: &info}, wire.Result)
}

// watchFound registers f for members that the launcher finds from now on.
func (l *Link) watchFound(f func(elastic.Member)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onFound = f
}

// watchOrders registers f for the launcher's orders after its answer to hello. Orders that have arrived
// before are passed to f first. f must not block.
func (l *Link) watchOrders(f func(wire.Message)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onOrder = f
	for len(l.answer) > 0 {
		f(<-l.answer)
	}
}

// deliverOrder passes a launcher's order to the registered function, or keeps it for hello or
// watchOrders. mu is held while the function runs, so that it gets the orders in the order of their
// arrival.
func (l *Link) deliverOrder(m wire.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.onOrder != nil {
		l.onOrder(m)
		return
	}
	select {
	case l.answer <- m: // for hello or watchOrders
	default: // more orders than a correct launcher sends: keep the first ones
	}
}

// isDead reports whether the launcher reported this death before watchDead was called.
func (l *Link) isDead(id elastic.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.dead, id)
}

// read receives the launcher's messages until the launcher dies. Then the program has exitDelay
// to end.
func (l *Link) read() {
	for {
		m, err := l.pipe.Receive()
		if err != nil {
			break
		}
		l.dispatch(m)
	}
	time.AfterFunc(exitDelay, func() { l.exit(1) })
	l.cancelGone()
}

// dispatch handles one message from the launcher. The reader calls it, so nothing here may block.
func (l *Link) dispatch(m wire.Message) {
	switch {
	case m.Start != nil || m.Abort != "" || m.Finished || m.Again || m.Pass != nil:
		l.deliverOrder(m)
	case m.Inquiry != nil || m.Figures != nil || m.Meter: // without a group there is nobody to ask
		l.mu.Lock()
		order := l.onOrder
		l.mu.Unlock()
		if order != nil {
			order(m)
		}
	case m.Scaled != nil:
		// The reader never blocks: it replaces an answer that nobody has taken.
		select {
		case <-l.scaled: // an answer that no request waited for
		default:
		}
		l.scaled <- *m.Scaled
	case m.Decision != nil:
		select {
		case <-l.decisions: // an answer that nobody waited for
		default:
		}
		l.decisions <- *m.Decision
	case m.Directory != nil:
		l.mu.Lock()
		learn := l.onDirectory
		l.mu.Unlock()
		if learn != nil {
			learn(*m.Directory)
		}
	case m.Found != nil:
		l.mu.Lock()
		found := l.onFound
		l.mu.Unlock()
		for _, p := range m.Found {
			if found != nil {
				found(p)
			}
		}
	case m.Dead != "":
		// Until there is a listener, deaths are kept for watchDead, up to a bound.
		l.mu.Lock()
		tell := l.onDead
		if tell == nil && len(l.dead) < spec.MaxMembers {
			l.dead = append(l.dead, m.Dead)
		}
		l.mu.Unlock()
		if tell != nil {
			tell(m.Dead)
		}
	}
}

// Emit implements event.Sink. It also updates the status that this peer's control socket reports.
// If the launcher does not read, Emit returns after at most emitWait, and a full outbox drops
// events of the less important classes.
func (l *Link) Emit(e event.Event) {
	l.mu.Lock()
	if l.reducer != nil {
		l.reducer.apply(e)
	}
	switch e.Body.(type) {
	case event.Step, event.View:
		l.moved = time.Now()
	}
	l.mu.Unlock()
	b, err := json.Marshal(e)
	if err != nil {
		return // the event has a number that JSON cannot represent
	}
	l.Post(wire.Message{Event: b}, classOf(e.Body))
}

// lastMoved returns the time of the last step or view of this peer; zero before. A nil Link knows none.
func (l *Link) lastMoved() time.Time {
	if l == nil {
		return time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.moved
}

// classOf returns the class of an event, which decides whether the outbox may drop it while the
// launcher does not read.
func classOf(b event.Body) wire.Class {
	switch b.(type) {
	case event.Step, event.Stall, event.Path, event.Shares, event.Order, event.Usage, event.Link, event.Clock:
		return wire.Telemetry
	case event.Done, event.Complete, event.Leave, event.Mistake, event.Refused, event.Quorum:
		return wire.Result
	}
	return wire.History
}

// dropped returns the event that reports how many events the outbox has dropped.
func (l *Link) dropped(events int) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := event.Event{Time: time.Now(), Body: event.Dropped{Events: events}}
	if l.reducer != nil {
		e.Peer, e.Index = l.reducer.self.ID, l.reducer.self.Index
	}
	b, err := json.Marshal(e)
	if err != nil {
		return nil
	}
	line, _ := wire.Encode(wire.Message{Event: b}) // no error: the message is short
	return line
}

// Post sends a message through the outbox. It returns when the socket has the message, or after
// emitWait if the launcher does not read in time.
func (l *Link) Post(m wire.Message, c wire.Class) {
	line, err := wire.Encode(m)
	if err != nil {
		return
	}
	sent := l.out.Add(line, c)
	if sent == nil {
		return
	}
	timer := time.NewTimer(emitWait)
	defer timer.Stop()
	select {
	case <-sent:
	// From now on the outbox returns no channel to wait on, until the launcher has read all
	// messages.
	case <-timer.C:
		l.out.ReaderLate()
	case <-l.LauncherGone.Done():
	}
}

// status returns the Status that the control socket reports; it is zero before hello.
func (l *Link) status() spec.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reducer == nil {
		return spec.Status{}
	}
	return l.reducer.report(time.Now())
}

// condition returns the state of this peer, and whether too few members are left for it to go on.
func (l *Link) condition() (state string, short bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reducer == nil {
		return spec.StateJoining, false
	}
	return l.reducer.condition(), l.reducer.short
}

// Close sends the queued messages, for as long as the launcher lives, and drops later events. The
// connection stays open, because its end shows the launcher's death.
func (l *Link) Close() error {
	l.out.Close()
	l.work.Wait()
	return l.releaseWord()
}

// passWord makes the word of this program, which goes to the launcher with the next message. Without
// a word the launcher learns of the end of this program by its status.
func (l *Link) passWord() {
	conn, ok := l.pipe.Conn.(*wire.WordConn)
	if !ok {
		return
	}
	word, err := shm.HoldWord(flight.MirrorSize)
	if err != nil {
		return
	}
	l.word = word
	conn.Word.Store(word.File())
}

// memory returns the memory that the launcher has, too, nil for none: the calls of this peer outlive it there.
func (l *Link) memory() []byte {
	if l.word == nil {
		return nil
	}
	return l.word.Rest()
}

// releaseWord gives the word back: this program is no peer any more.
func (l *Link) releaseWord() error {
	if l.word == nil {
		return nil
	}
	return l.word.Release()
}

// decisionLimit is how long a peer waits for the decision of a launcher that may be stopped.
const decisionLimit = 5 * time.Second

// retry implements elastic.Config.OnRetry.
func (l *Link) retry(ctx context.Context, r elastic.Retry) (done func(), err error) {
	o := wire.RetryOrder{Step: r.Step, Samples: r.Samples[:min(len(r.Samples), wire.MaxRetrySamples)]}
	o.More = len(r.Samples) - len(o.Samples)
	for _, id := range r.Of[:min(len(r.Of), wire.MaxRetryOf)] {
		o.Of = append(o.Of, id.Short())
	}
	l.mu.Lock()
	l.seq++
	o.Seq = l.seq
	l.mu.Unlock()
	l.Post(wire.Message{Retry: &o}, wire.Result)
	done = func() { l.Post(wire.Message{Retry: &wire.RetryOrder{}}, wire.Result) }
	limit := time.NewTimer(decisionLimit)
	defer limit.Stop()
	for {
		select {
		case v := <-l.decisions:
			if v.Seq == o.Seq && v.Mistake != "" {
				return done, fmt.Errorf("%s", v.Mistake)
			}
			if v.Seq == o.Seq {
				return done, nil
			}
		case <-limit.C:
			return done, nil
		case <-l.LauncherGone.Done():
			return done, nil
		case <-ctx.Done():
			return done, context.Cause(ctx)
		}
	}
}
