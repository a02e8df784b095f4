package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
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

// finish ends the view on both streams. The last frames depend on why the mailbox has failed:
//
//	cause        urgent stream         data stream
//	Close        Bye, then End         Bye
//	revocation   Revoke, then End      End, or a reset in the middle of a frame
//	mesh closed  End                   reset
//
// The peer answers a Bye or a Revoke by an Ack on the urgent stream, or has sent a Bye or Revoke
// itself. finish waits until the mailbox fails, then informs the peer, and at Close waits until the
// peer needs nothing more from this rank. Streams that were ended in good order are kept for the
// next view.
func (p *pair) finish() {
	select {
	case <-p.t.box.Failed():
	case <-p.t.meshClosed:
		p.resetData() // so the reader makes the mailbox fail
		<-p.t.box.Failed()
	}
	cause := p.t.box.Cause()
	whole := false
	if cause != p.t.closedErr {
		whole = p.forwardCause(cause)
	}
	select {
	case <-p.t.closing:
	case <-p.t.meshClosed: // nothing is sent to peers any more
	}
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	if cause == p.t.closedErr {
		whole = p.sayBye()
	}
	settled := true
	select {
	case <-p.peerDone:
	case <-timer.C:
		settled = false
	}
	whole = p.stopFilling() && whole && settled
	if !whole {
		_ = p.data.raw.Reset()
	}
	p.t.lanes.endView(p.lanes[dataStream])
	p.dataOver <- whole
	whole = p.endUrgent(settled)
	p.t.lanes.endView(p.lanes[urgentStream])
	p.urgentOver <- whole
}

// stopFilling waits until nothing is read into the mailbox any more. If a message is being read, it
// resets the stream and returns false.
func (p *pair) stopFilling() bool {
	empty := p.filling.tryLock()
	if !empty {
		_ = p.data.raw.Reset()
		p.filling.Lock()
	}
	p.filling.Unlock()
	return empty
}

// sayBye ends the view on the data stream by a Bye, and reports whether that was in good order. The
// announcement on the urgent stream makes the peer read on, so that a Send or signal that is being
// written can finish. If that takes longer than turnTime, the peer has only a part of the message,
// so sayBye revokes the view at the peer.
func (p *pair) sayBye() bool {
	select {
	// The peer has said bye first. So this side announces nothing, and its last frame is End.
	case <-p.left:
		return p.endData()
	default:
	}
	p.writeUrgent(wire.Header{Kind: wire.Bye}, nil)
	timer := time.NewTimer(turnTime)
	defer timer.Stop()
	at := p.data.writers.enqueue(0)
	select {
	case <-p.left:
		p.data.writers.cancel(at)
		return p.endData()
	case <-at.turn:
		defer p.data.writers.release(at)
	case <-timer.C:
		p.data.writers.cancel(at)
		return p.forwardCause(&transport.PeerError{Rank: p.t.self, Peer: p.t.names[p.t.self], Cause: "closed while sending"})
	}
	return p.data.writeWithin(closeTime, wire.Header{Kind: wire.Bye}, nil) == nil
}

// forwardCause sends the cause of a revocation to the peer, then ends the view on the data stream.
// It reports whether the stream was ended in good order.
func (p *pair) forwardCause(cause error) bool {
	select {
	case <-p.t.meshClosed:
		p.resetData() // the mesh ends its connections one by one, so the cause may blame a peer without reason
		return false
	default:
	}
	p.writeUrgent(wire.Header{Kind: wire.Revoke}, transport.EncodeCause(p.t.self, cause))
	return p.endData()
}

// endData ends the view on the data stream by a last frame, End, and returns true. If this rank is
// in the middle of writing or reading a message, endData resets the stream and returns false, so
// that the buffers of the message are free.
func (p *pair) endData() bool {
	whole := p.filling.tryLock()
	if whole {
		p.filling.Unlock() // the mailbox has failed, so it accepts no message any more
		at, idle := p.tryTurn()
		whole = idle
		if idle {
			whole = p.data.writeWithin(turnTime, wire.Header{Kind: wire.End}, nil) == nil
			p.data.writers.release(at)
		}
	}
	if !whole {
		_ = p.data.raw.Reset()
	}
	return whole
}

// endUrgent ends the view on the urgent stream by a last frame, and returns true. No frame is
// written after that. An answer to the peer that is being written comes before, because endUrgent
// waits for the turn. If the peer still needs something from this rank, or the write fails,
// endUrgent resets the stream and returns false.
func (p *pair) endUrgent(settled bool) bool {
	at := p.urgent.writers.enqueue(0)
	<-at.turn
	defer p.urgent.writers.release(at)
	p.urgentClosed = true
	if settled && p.urgent.writeWithin(urgentTime, wire.Header{Kind: wire.End}, nil) == nil {
		return true
	}
	_ = p.urgent.raw.Reset()
	return false
}

// resetData resets the data stream when the mesh closes. If the data stream has a connection of its
// own, the carrier may not have ended that connection yet.
func (p *pair) resetData() { _ = p.data.raw.Reset() }

// writeUrgent writes a frame on the urgent stream. It ignores errors: a peer that does not get the
// frame sees the streams end.
func (p *pair) writeUrgent(h wire.Header, payload []byte) {
	at := p.urgent.writers.enqueue(0)
	<-at.turn
	if !p.urgentClosed {
		_ = p.urgent.writeWithin(urgentTime, h, payload)
	}
	p.urgent.writers.release(at)
}

// tryTurn takes the turn to write on the data stream after the mailbox has failed. It returns false
// if a frame is being written. A goroutine that has the turn without writing is about to release
// it, so tryTurn waits for that goroutine.
func (p *pair) tryTurn() (*ticket, bool) {
	// The highest priority: messages that wait belong to calls that have failed.
	at := p.data.writers.enqueue(math.MaxInt32)
	for {
		select {
		case <-at.turn:
			return at, true
		default:
		}
		if p.writing.Load() {
			p.data.writers.cancel(at)
			return nil, false
		}
		runtime.Gosched()
	}
}

// filling is a lock that is held while a message is read into the mailbox.
type filling struct {
	sync.Mutex
	reading atomic.Bool // the bytes of the message are being read; set under the lock
}

// tryLock locks after the mailbox has failed. It returns false if a message is being read. A reader
// that has the lock without reading is about to release it, so tryLock waits for that reader.
func (f *filling) tryLock() bool {
	for !f.TryLock() {
		if f.reading.Load() {
			return false
		}
		runtime.Gosched()
	}
	return true
}
