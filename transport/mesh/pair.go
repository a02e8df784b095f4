package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/internal/wire"
	"github.com/elrun/elrun/transport/mailbox"
)

// The limits of the waits for a peer. They are reached only when the peer's process is stopped, or
// when its network is cut.
const (
	// causeTime bounds the wait for a cause on the urgent stream after the data stream broke. The
	// peer writes the cause before it ends the data stream. But where the data stream has a
	// connection of its own, this rank may read the cause later than the end, by seconds on a busy
	// machine.
	causeTime = 10 * time.Second
	// turnTime bounds the wait at Close for a Send or signal that is still being written.
	turnTime = 2 * time.Second
	// urgentTime bounds a write on the urgent stream. A rank that gives up the write too early is
	// blamed itself, because the peer does not receive the cause.
	urgentTime = 5 * time.Second
	// closeTime bounds the wait for the answer to a bye.
	closeTime = 5 * time.Second
)

// signalQueue is how many signals may wait to be written. Further signals are lost.
const signalQueue = 64

// errProtocol: an authenticated member has sent something that no version of this program sends.
var errProtocol = errors.New("broke the protocol")

// pair is the connection with one other rank in one view. These goroutines use it:
//
//   - the readers of its two lanes, in readData and readUrgent; they belong to the lanes and outlive the pair;
//   - the callers of Send, who take turns at the data stream by priority;
//   - writeSignals, for signals and probes;
//   - finish, which waits until the mailbox fails, and then ends the view on both streams.
//
// The readers wait for finish, on dataOver and urgentOver, before they make a lane idle: only
// finish knows whether this side has written its last frame.
type pair struct {
	t     *Transport
	rank  int
	name  string // the short ID of the peer
	lanes [streamsPerPair]*lane
	// data and urgent are the streams of the two lanes.
	data, urgent *stream
	path         event.Path
	signals      chan []byte
	probes       chan int // lengths of probes, in bytes
	gauge        mailbox.Gauge

	writing atomic.Bool // a message or signal is being written
	filling filling     // held while a message is read into the mailbox

	left         chan struct{} // closed when the peer sends nothing more, usually by its bye
	urgentEnded  chan struct{} // closed when the view on the urgent stream has ended
	closedEarly  atomic.Bool   // a bye has ended the urgent stream: the data stream has no more messages
	peerDone     chan struct{} // closed when the peer needs nothing more from this rank
	peerDoneOnce sync.Once

	// finish sends one value on each when it is done: whether this side has ended the view in good
	// order on the data stream, and on the urgent stream.
	dataOver, urgentOver chan bool
	urgentClosed         bool // nothing is written on the urgent stream any more; guarded by the writer's turn
}

// newPair makes the pair with one rank over its two lanes; Transport.begin starts its goroutines.
func newPair(t *Transport, rank int, name string, s lanePair) *pair {
	return &pair{
		t: t, rank: rank, name: name,
		path:  s[dataStream].path,
		lanes: [streamsPerPair]*lane{dataStream: s[dataStream].lane, urgentStream: s[urgentStream].lane},
		data:  s[dataStream].stream, urgent: s[urgentStream].stream,
		signals: make(chan []byte, signalQueue), probes: make(chan int, 1),
		left: make(chan struct{}), urgentEnded: make(chan struct{}), peerDone: make(chan struct{}),
		dataOver: make(chan bool, 1), urgentOver: make(chan bool, 1),
	}
}

// markPeerDone notes that Close need not wait for the peer any more.
func (p *pair) markPeerDone() { p.peerDoneOnce.Do(func() { close(p.peerDone) }) }

// lost returns the error for the loss of the peer.
func (p *pair) lost(why string) error {
	return &transport.PeerError{Rank: p.rank, Peer: p.name, Cause: why}
}

// lossCause returns the cause with which to revoke the view after the data stream broke with err.
// First it waits for a revocation that may be in flight on the urgent stream. If a revocation
// comes, its cause stays in effect, because the first cause wins. So a peer that only passed on the
// cause is not blamed.
func (p *pair) lossCause(err error) error {
	select {
	case <-p.t.meshClosed:
		return errClosed()
	case <-p.left:
		return p.lost("closed")
	default:
	}
	// The cause is known, so there is nothing to wait for.
	if errors.Is(err, errProtocol) || errors.Is(err, ErrPath) {
		return p.lost(err.Error())
	}
	timer := time.NewTimer(causeTime)
	defer timer.Stop()
	select {
	case <-p.t.box.Failed():
	case <-p.urgentEnded:
	case <-timer.C:
	}
	if p.closedEarly.Load() {
		return p.lost("closed")
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return p.lost("connection closed")
	}
	if errors.Is(err, ErrReset) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return p.lost("connection reset")
	}
	return p.lost(err.Error())
}

// peerDied handles the report of the death watch that the peer's process is ending, some
// milliseconds before its streams end. A rank that is revoked ends its death watch first. So the
// peer was not revoked, and no other cause is in flight.
func (p *pair) peerDied() {
	select {
	case <-p.t.meshClosed: // the readers handle the end of the mesh
	case <-p.left:
	default:
		p.t.Revoke(&transport.PeerError{Rank: p.rank, Peer: p.name, Cause: "process ended", Ended: true})
	}
}

// send writes one message. If it fails, the caller revokes the view with the error.
func (p *pair) send(ctx context.Context, e transport.Envelope, buf []byte) error {
	turn, err := p.takeTurn(ctx, e.Priority)
	if err != nil {
		return err
	}
	lost := false
	if p.data.watch != nil {
		lost, err = p.data.watch.Sending(Outgoing{Bytes: len(buf), Epoch: p.t.epoch, Envelope: e})
	}
	if err == nil && !lost {
		h := wire.Header{Kind: wire.Data, Comm: e.Comm, Seq: e.Seq}
		e.Call.Append(h.Call[:0])
		err = p.writeUntil(ctx, &h, buf)
	}
	p.endTurn(turn)
	if err != nil {
		return p.lossCause(err)
	}
	return nil
}

// takeTurn waits for the turn to write on the data stream. The caller has the turn until it calls
// endTurn. The view may end while the caller waits, so takeTurn checks the view again when it has
// the turn: after the last frame of this side nothing may be written on the stream.
func (p *pair) takeTurn(ctx context.Context, priority int32) (*ticket, error) {
	at := p.data.writers.enqueue(priority)
	var err error
	select {
	case <-at.turn:
		if err = p.failure(); err != nil {
			p.data.writers.release(at)
			return nil, err
		}
		// By this flag tryTurn tells a writer that may block in the stream from a writer that only
		// holds the turn.
		p.writing.Store(true)
		return at, nil
	case <-ctx.Done():
		err = mailbox.Cancelled(ctx, p.t.self, fmt.Sprintf("send to rank %d", p.rank))
	case <-p.t.box.Failed():
		err = p.t.box.Cause()
	case <-p.left:
		err = p.lost("closed")
	}
	p.data.writers.cancel(at)
	return nil, err
}

// endTurn gives up the turn that takeTurn has returned.
func (p *pair) endTurn(at *ticket) {
	p.writing.Store(false)
	p.data.writers.release(at)
}

// failure returns why no message may be written any more, or nil.
func (p *pair) failure() error {
	select {
	case <-p.left:
		return p.lost("closed")
	default:
		return p.t.box.Cause()
	}
}

// writeUntil writes a frame. If ctx ends during the write, writeUntil revokes the view, which ends
// the write. The view must end with the call, because behind a part of a frame the stream cannot
// carry another frame.
func (p *pair) writeUntil(ctx context.Context, h *wire.Header, buf []byte) error {
	if ctx.Done() == nil {
		return p.data.write(h, buf)
	}
	stop := context.AfterFunc(ctx, func() {
		p.t.Revoke(mailbox.Cancelled(ctx, p.t.self, fmt.Sprintf("send to rank %d", p.rank)))
	})
	defer stop()
	return p.data.write(h, buf)
}

// signalWait is how long a signal waits for the end of messages that were sent before it. A message
// may need minutes, or wait until the peer receives.
const signalWait = 100 * time.Millisecond

// writeSignals writes signals and probes behind the messages that were sent before them. A signal
// that would wait for long goes on the urgent stream, where it overtakes the messages: otherwise
// ranks that wait for each other in Send could not find that.
func (p *pair) writeSignals() {
	for {
		h, payload := wire.Header{Kind: wire.Signal}, []byte(nil)
		select {
		case payload = <-p.signals:
		case n := <-p.probes:
			h.Kind, payload = wire.Probe, make([]byte, n)
		case <-p.t.box.Failed():
			return
		case <-p.left:
			return
		}
		ctx, cancel := context.Background(), func() {}
		if h.Kind == wire.Signal {
			ctx, cancel = context.WithTimeout(ctx, signalWait)
		}
		turn, err := p.takeTurn(ctx, 0)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			p.writeUrgent(h, payload)
			continue
		}
		if err != nil {
			return
		}
		err = p.data.write(&h, payload)
		p.endTurn(turn)
		if err != nil {
			return // the reader finds the cause
		}
	}
}

// readData fills the mailbox until the peer ends the view on the data stream, or the stream breaks.
// After a failure of the mailbox it reads on and discards messages. It reports whether both sides
// have ended the view on the stream in good order.
func (p *pair) readData() bool {
	last, err := p.readFrames()
	switch {
	case err != nil:
		// Revoke has no effect if this rank has been revoked or closed. markPeerDone is not called:
		// the peer may still need the cause, which is in flight on the urgent stream.
		cause := p.lossCause(err)
		if p.closedEarly.Load() {
			p.markLeft()
			return false
		}
		p.t.Revoke(cause)
		return false
	case last == wire.End:
		p.t.Revoke(p.lossCause(io.EOF)) // no effect if this rank has been revoked or closed
	default:
		p.takeBye()
	}
	return <-p.dataOver
}

// takeBye handles the bye of the peer, which has closed the view.
func (p *pair) takeBye() {
	p.markLeft()
	p.writeUrgent(wire.Header{Kind: wire.Ack}, nil)
	if p.t.box.Cause() == nil && p.writing.Load() {
		// The peer will not read the message that is being written: end the Send.
		_ = p.data.raw.SetWriteDeadline(time.Unix(1, 0))
	}
}

// markLeft notes that the peer sends nothing any more. Receives of messages that have arrived
// before still succeed.
func (p *pair) markLeft() {
	p.t.box.End(p.rank, p.lost("closed"))
	close(p.left)
	p.markPeerDone()
}

// readFrames handles frames until the peer's last frame of the view, and returns its kind, Bye or
// End.
func (p *pair) readFrames() (wire.Kind, error) {
	var signal [transport.MaxSignal]byte
	for {
		_ = p.t.box.WaitRoom(p.rank, nil, nil)
		h, err := p.data.next()
		switch {
		case err == nil:
		case errors.Is(err, wire.ErrMagic), errors.Is(err, wire.ErrVersion),
			errors.Is(err, wire.ErrFormat), errors.Is(err, wire.ErrLimit):
			return 0, fmt.Errorf("%w: %w", errProtocol, err)
		default:
			return 0, err
		}
		switch h.Kind {
		case wire.Data:
			err = p.readMessage(h)
		case wire.Signal:
			var msg []byte
			if msg, err = p.data.small(h, signal[:]); err == nil {
				p.t.box.Signal(p.rank, msg, false)
			}
		case wire.Probe:
			err = p.gauge.Skip(p.data.in, int(h.Length))
		case wire.Share:
			// A message about shared memory that the first rank of the host did not wait for:
			// discard it.
			_, err = io.CopyN(io.Discard, p.data.in, int64(h.Length))
		case wire.Bye, wire.End:
			return h.Kind, nil
		default:
			err = fmt.Errorf("%w: %v on the data stream", errProtocol, h.Kind)
		}
		if err != nil {
			return 0, err
		}
	}
}

// readMessage reads the payload of a message into the buffer that the mailbox gives. If the mailbox
// has failed, readMessage discards the payload and returns no error, because a bye may follow.
func (p *pair) readMessage(h wire.Header) error {
	call, err := transport.DecodeCall(h.Call[:])
	if err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	taken, err := p.fill(transport.Envelope{Comm: h.Comm, Seq: h.Seq, Call: call}, int(h.Length))
	switch {
	case !taken:
		_, err = io.CopyN(io.Discard, p.data.in, int64(h.Length))
	case err == nil && h.Length >= yieldFrom:
		runtime.Gosched()
	}
	return err
}

// fill reads the payload of a message into the mailbox. taken is false if the mailbox has failed:
// then nothing was read.
func (p *pair) fill(e transport.Envelope, size int) (taken bool, err error) {
	if err := p.t.box.Cause(); err != nil {
		return false, err
	}
	p.filling.Lock()
	defer p.filling.Unlock()
	m, err := p.t.box.Accept(p.rank, e, size)
	if err != nil {
		return false, err
	}
	p.filling.reading.Store(true)
	err = p.gauge.Fill(p.data.in, m.Buf)
	p.filling.reading.Store(false) // before Done, as the receiver may end the view at once (see stopFilling)
	if err != nil {
		m.Abort()
		return true, err
	}
	m.Done()
	return true, nil
}

// yieldFrom is the shortest message, in bytes, after which the reader yields to other goroutines.
// Then the goroutine that has waited for the message finds it in the cache, and posts the next
// receive, so that the next message is read straight into its buffer. If the reader read on
// instead, it would have to buffer the next message, and the message would be copied.
const yieldFrom = 64 << 10

// readUrgent handles the frames of the urgent stream, beginning with first, until the last frame of
// the view or an error of the stream. It reports whether both sides have ended the view on the
// stream in good order.
func (p *pair) readUrgent(first urgentFrame) bool {
	f, bye := first, false
	for f.err == nil && f.Kind != wire.End && p.takeUrgent(f) {
		bye = bye || f.Kind == wire.Bye
		f = p.urgent.nextUrgent()
	}
	// A peer that has closed the view ends this stream only when all its messages were received. If
	// the bye on its data stream is still missing and that stream breaks, no message is lost.
	p.closedEarly.Store(bye && f.err == nil && f.Kind == wire.End)
	// A paused reader of the data stream must go on, to see that the data stream has ended, too.
	p.t.box.LiftLimit(p.rank)
	p.markPeerDone()
	close(p.urgentEnded)
	return f.err == nil && f.Kind == wire.End && <-p.urgentOver
}

// takeUrgent handles a frame of the urgent stream. It returns false if the frame does not belong
// there. A bye on the urgent stream announces the bye on the data stream.
func (p *pair) takeUrgent(f urgentFrame) bool {
	switch f.Kind {
	case wire.Revoke:
		p.t.Revoke(transport.DecodeCause(p.rank, f.body))
		p.writeUrgent(wire.Header{Kind: wire.Ack}, nil)
		p.markPeerDone()
	case wire.Ack:
		p.markPeerDone()
	case wire.Signal:
		p.t.box.Signal(p.rank, f.body, true)
	case wire.Bye:
		// Lift the limit of buffered messages: few messages are still to come, and the peer waits
		// until they are read.
		p.t.box.LiftLimit(p.rank)
	default:
		p.t.Revoke(p.lost(fmt.Sprintf("%v: %v on the urgent stream", errProtocol, f.Kind)))
		return false
	}
	return true
}
