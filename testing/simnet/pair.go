package simnet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/mailbox"
)

// end is one side of the connection between two ranks of a session. Messages, signals and
// bye go through out, in order and with a window; revocations, the announcement of a bye
// and answers go through the link's urgent pipe and wait for nothing.
type end struct {
	node *node
	peer elastic.ID
	rank int // of the peer
	link *link
	out  *pipe

	ready    chan struct{} // holds a token when the reader should look again
	left     chan struct{} // closed when the peer has said bye
	settled  chan struct{} // closed when the peer needs nothing more of this rank
	settling sync.Once

	// Guarded by the network's mu.
	other     *end           // the peer's side
	t         *viewTransport // once the session has begun
	inbox     []arrival
	pending   []func() // urgent frames that came before that
	broken    error    // why nothing more will come
	closed    bool
	withdrawn bool // the sender of the hello does not want it any more
}

// arrival is a frame of the data pipe.
type arrival struct {
	kind arrivalKind
	env  transport.Envelope
	data []byte
}

type arrivalKind uint8

const (
	message arrivalKind = iota + 1
	signal
	bye
	broken // not a frame: nothing more will come
)

// newEnd returns this member's side of a connection over l, the link to the peer.
func newEnd(m *node, l *link, rank int, peer elastic.ID) *end {
	return &end{node: m, peer: peer, rank: rank, link: l, out: l.addPipeLocked(Data),
		ready: make(chan struct{}, 1), left: make(chan struct{}), settled: make(chan struct{})}
}

// settle notes that Close need not wait for the peer any more.
func (e *end) settle() { e.settling.Do(func() { close(e.settled) }) }

// lost returns the loss of the peer.
func (e *end) lost(why string) error {
	return &transport.PeerError{Rank: e.rank, Peer: e.peer.Short(), Cause: why}
}

// send writes one message. The error is for a revocation.
func (e *end) send(ctx context.Context, env transport.Envelope, buf []byte) error {
	data := append([]byte(nil), buf...)
	err := e.out.write(ctx, e.frame(arrival{message, env, data}), e.t.box.Failed(), e.left)
	switch {
	case err == nil:
		return nil
	case e.t.box.Cause() != nil:
		return e.t.box.Cause()
	case !errors.Is(err, errEnded):
		return mailbox.Cancelled(ctx, e.t.self, fmt.Sprintf("send to rank %d", e.rank))
	}
	return e.verdict()
}

// verdict returns why the stream to the peer has ended.
func (e *end) verdict() error {
	select {
	case <-e.left:
		return e.lost("closed")
	default:
	}
	e.node.net.mu.Lock()
	defer e.node.net.mu.Unlock()
	if e.broken != nil {
		return e.lost(e.broken.Error())
	}
	return e.lost("closed")
}

// frame returns the frame that brings a to the peer.
func (e *end) frame(a arrival) frame {
	return frame{size: len(a.data) + overhead, deliver: func() { e.other.receive(a) }}
}

// receive is the arrival of a frame of the data pipe.
func (e *end) receive(a arrival) {
	e.node.net.mu.Lock()
	defer e.node.net.mu.Unlock()
	if !e.closed {
		e.inbox = append(e.inbox, a)
		e.tell()
	}
}

// tell wakes the reader.
func (e *end) tell() {
	select {
	case e.ready <- struct{}{}:
	default:
	}
}

// signal sends a signal behind the messages before it, if there is room.
func (e *end) signal(msg []byte) {
	_, _ = e.out.tryWrite(e.frame(arrival{kind: signal, data: append([]byte(nil), msg...)}))
}

// urgentLocked sends an urgent frame, of which f is the arrival at the peer.
func (e *end) urgentLocked(size int, f func(peer *end)) {
	o := e.other
	if o == nil || e.broken != nil {
		return // the peer has not answered the hello, or its connection is gone
	}
	e.link.submitLocked(e.link.urgent[Data], frame{size: size + overhead, deliver: func() { o.hear(func() { f(o) }) }})
}

// urgent is urgentLocked for callers without the lock.
func (e *end) urgent(f func(peer *end)) {
	e.node.net.mu.Lock()
	defer e.node.net.mu.Unlock()
	e.urgentLocked(0, f)
}

// hear is the arrival of an urgent frame; it waits for the session to begin.
func (e *end) hear(f func()) {
	e.node.net.mu.Lock()
	wait := e.t == nil || len(e.pending) > 0
	closed := e.closed || e.broken != nil
	if wait && !closed {
		e.pending = append(e.pending, f)
	}
	e.node.net.mu.Unlock()
	if !wait && !closed {
		f()
	}
}

// startLocked lets the end work for a session, whose Close waits for the reader; so does
// that of the network.
func (e *end) startLocked(t *viewTransport) {
	e.t = t
	t.working.Add(1)
	e.node.net.working.Go(func() {
		defer t.working.Done()
		e.read()
	})
	e.node.net.clock.at(time.Now(), e.catchUp)
}

// catchUp does in the clock's goroutine what urgent frames wanted before the session
// began.
func (e *end) catchUp() {
	for {
		e.node.net.mu.Lock()
		var f func()
		if len(e.pending) > 0 {
			f = shift(&e.pending)
		}
		isBroken := e.broken != nil
		e.node.net.mu.Unlock()
		if isBroken {
			e.t.box.Unbound(e.rank)
		}
		if f == nil {
			return
		}
		f()
	}
}

// breakOff ends the connection at this side. The reader takes in what has come, then
// revokes.
func (e *end) breakOff(why error) {
	e.node.net.mu.Lock()
	if e.closed || e.broken != nil {
		e.node.net.mu.Unlock()
		return
	}
	e.broken = why
	e.out.breakLocked()
	e.tell()
	t := e.t
	e.node.net.mu.Unlock()
	e.settle()
	if t != nil {
		t.box.Unbound(e.rank) // the reader may be paused
	}
}

// withdrawLocked ends a connection that no session will use, at both sides.
func (e *end) withdrawLocked() {
	e.link.submitLocked(e.link.urgent[Data], frame{size: overhead, deliver: func() { e.undo() }})
	e.closeLocked()
}

// undo is the arrival of withdrawLocked's frame at the peer.
func (e *end) undo() {
	e.node.net.mu.Lock()
	e.withdrawn = true
	o := e.other
	e.node.net.mu.Unlock()
	if o != nil {
		o.breakOff(errReset)
	}
}

// closeLocked ends this side; what still comes is thrown away.
func (e *end) closeLocked() {
	e.closed = true
	e.inbox, e.pending = nil, nil
	e.out.endLocked()
	delete(e.node.wires, e)
}

// take waits for the next frame; ok is false when the session ends.
func (e *end) take() (a arrival, ok bool) {
	for {
		a, running := e.tryTake()
		if a.kind != 0 {
			return a, true
		}
		wake := e.ready
		if running != nil {
			wake = nil // a stopped process does not read
		}
		select {
		case <-wake:
		case <-running:
		case <-e.t.over:
			return arrival{}, false
		case <-e.node.gone:
			return arrival{}, false
		}
	}
}

// tryTake takes out the next frame, if there is one. running is a channel to wait for if
// the member is stopped.
func (e *end) tryTake() (a arrival, running <-chan struct{}) {
	e.node.net.mu.Lock()
	defer e.node.net.mu.Unlock()
	switch {
	case e.node.stopped:
		return arrival{}, e.node.running
	case len(e.inbox) > 0:
		return shift(&e.inbox), nil
	case e.broken != nil:
		return arrival{kind: broken}, nil
	}
	return arrival{}, nil
}

// read fills the mailbox until the peer says bye or the connection breaks. After a
// failure of the mailbox it reads on and throws away, as what comes may be a bye.
func (e *end) read() {
	box := e.t.box
	for {
		_ = box.WaitRoom(e.rank, nil, nil)
		a, ok := e.take()
		if !ok {
			return
		}
		switch a.kind {
		case message:
			e.accept(a)
		case signal:
			box.Signal(e.rank, a.data)
			e.other.out.read(len(a.data) + overhead)
		case bye:
			box.End(e.rank, e.lost("closed"))
			close(e.left) // ends what is still being sent to the peer
			e.settle()
			e.urgent((*end).settle)
			return
		case broken:
			e.t.Revoke(e.verdict())
			return
		}
	}
}

// accept hands a message to the mailbox, if that still wants any.
func (e *end) accept(a arrival) {
	if m, err := e.t.box.Accept(e.rank, a.env, len(a.data)); err == nil {
		copy(m.Buf, a.data)
		m.Done()
	}
	e.other.out.read(len(a.data) + overhead)
}

// sayByeLocked ends what this rank sends. The announcement makes a paused reader read
// on to the bye behind the messages.
func (e *end) sayByeLocked() {
	e.urgentLocked(0, func(peer *end) { peer.t.box.Unbound(peer.rank) })
	e.link.submitLocked(e.out, e.frame(arrival{kind: bye}))
	e.out.endLocked()
}

// passOnLocked tells the peer the cause of a revocation.
func (e *end) passOnLocked(cause []byte) {
	e.urgentLocked(len(cause), func(peer *end) {
		peer.t.Revoke(transport.DecodeCause(peer.rank, cause))
		peer.settle()
		peer.urgent((*end).settle)
	})
	e.out.endLocked()
}

// finLocked is the last frame: who has seen it need not wait for this rank.
func (e *end) finLocked() {
	e.urgentLocked(0, func(peer *end) {
		peer.settle()
		peer.t.box.Unbound(peer.rank)
	})
	e.closeLocked()
}
