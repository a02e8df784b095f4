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

// How long a pair waits for its peer. Each is reached only when the peer's process is
// stopped or its network is cut.
const (
	// verdictTime: after the data stream broke, for the urgent stream to tell why. That was
	// written before, but where the data has a connection of its own it may be read later, on
	// a machine that has much else to do by seconds.
	verdictTime = 10 * time.Second
	// turnTime: at Close, for a Send or signal that is still being written.
	turnTime = 2 * time.Second
	// urgentTime: to write a frame on the urgent stream. Who gives up too early is blamed
	// for what it could not tell.
	urgentTime = 5 * time.Second
	// closeTime: for a peer to answer bye.
	closeTime = 5 * time.Second
)

// signalQueue is how many signals wait to be written before new ones are lost.
const signalQueue = 64

// errProtocol: an authenticated member sends what no version of this program would.
var errProtocol = errors.New("broke the protocol")

// pair is the connection with one other rank.
type pair struct {
	t            *Transport
	rank         int
	name         string // short ID
	lanes        [streamsPerPair]*lane
	data, urgent *stream // of the lanes
	path         event.Path
	signals      chan []byte
	probes       chan int // lengths
	gauge        mailbox.Gauge

	writing atomic.Bool // a message or signal is being written
	filling sync.Mutex  // held while a message is read into the mailbox

	left     chan struct{} // closed when the peer has said bye
	told     chan struct{} // closed when the urgent stream has ended
	parted   atomic.Bool   // the peer has closed, before it had the data stream
	settled  chan struct{} // closed when the peer needs nothing more of this rank
	settling sync.Once

	// Whether this side has ended the view in good order on its data stream and on the urgent one. Each has
	// an element when finish is done.
	dataOver, urgentOver chan bool
	silent               bool // nothing is written on the urgent stream any more; its writer's
}

// newPair takes over the streams to one rank; its goroutines are for newTransport to start.
func newPair(t *Transport, rank int, name string, s couple) *pair {
	return &pair{
		t: t, rank: rank, name: name,
		path:  s[dataStream].path,
		lanes: [streamsPerPair]*lane{dataStream: s[dataStream].lane, urgentStream: s[urgentStream].lane},
		data:  s[dataStream].stream, urgent: s[urgentStream].stream,
		signals: make(chan []byte, signalQueue), probes: make(chan int, 1),
		left: make(chan struct{}), told: make(chan struct{}), settled: make(chan struct{}),
		dataOver: make(chan bool, 1), urgentOver: make(chan bool, 1),
	}
}

// settle notes that Close need not wait for the peer any more.
func (p *pair) settle() { p.settling.Do(func() { close(p.settled) }) }

// lost returns the loss of the peer.
func (p *pair) lost(why string) error {
	return &transport.PeerError{Rank: p.rank, Peer: p.name, Cause: why}
}

// verdict returns what to revoke with after the data stream broke with err. It waits
// for a revocation that may be under way on the urgent stream, and then is the cause
// that stays, so that nobody is blamed for passing on the bad news.
func (p *pair) verdict(err error) error {
	select {
	case <-p.t.host:
		return errClosed()
	case <-p.left:
		return p.lost("closed")
	default:
	}
	if errors.Is(err, errProtocol) || errors.Is(err, ErrPath) {
		return p.lost(err.Error())
	}
	timer := time.NewTimer(verdictTime)
	defer timer.Stop()
	select {
	case <-p.t.box.Failed():
	case <-p.told:
	case <-timer.C:
	}
	if p.parted.Load() {
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

// died takes in that the peer's process is ending, some milliseconds before its streams do.
// It had not been revoked, as a revocation ends the death watch first: there is no other cause on
// its way to wait for.
func (p *pair) died() {
	select {
	case <-p.t.host: // of which the readers tell
	case <-p.left:
	default:
		p.t.Revoke(p.lost("process ended"))
	}
}

// send writes one message. The error is for a revocation.
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
	p.leave(turn)
	if err != nil {
		return p.verdict(err)
	}
	return nil
}

// takeTurn waits for the data stream, which is the caller's until it leaves its place.
func (p *pair) takeTurn(ctx context.Context, priority int32) (*place, error) {
	at := p.data.writers.join(priority)
	var err error
	select {
	case <-at.turn:
		if err = p.over(); err != nil {
			p.data.writers.leave(at)
			return nil, err
		}
		p.writing.Store(true)
		return at, nil
	case <-ctx.Done():
		err = mailbox.Cancelled(ctx, p.t.self, fmt.Sprintf("send to rank %d", p.rank))
	case <-p.t.box.Failed():
		err = p.t.box.Cause()
	case <-p.left:
		err = p.lost("closed")
	}
	p.data.writers.quit(at)
	return nil, err
}

// leave gives up the place of takeTurn.
func (p *pair) leave(at *place) {
	p.writing.Store(false)
	p.data.writers.leave(at)
}

// over returns why nothing is to be written any more, or nil.
func (p *pair) over() error {
	select {
	case <-p.left:
		return p.lost("closed")
	default:
		return p.t.box.Cause()
	}
}

// writeUntil writes a frame; the end of ctx revokes, which ends the writing.
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

// writeSignals writes signals and probes behind the messages that were sent before them.
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
		turn, err := p.takeTurn(context.Background(), 0)
		if err != nil {
			return
		}
		err = p.data.write(&h, payload)
		p.leave(turn)
		if err != nil {
			return // the reader finds out why
		}
	}
}

// readData fills the mailbox until the peer ends the view on the data stream, or that breaks.
// After a failure of the mailbox it reads on and throws away. It reports whether both sides have ended in
// good order.
func (p *pair) readData() bool {
	last, err := p.readFrames()
	switch {
	case err != nil:
		// Of no effect if this rank has been revoked or closed. The urgent stream settles
		// the pair: the peer may still need the cause that is on its way there.
		cause := p.verdict(err)
		if p.parted.Load() {
			p.part()
			return false
		}
		p.t.Revoke(cause)
		return false
	case last == wire.End:
		p.t.Revoke(p.verdict(io.EOF)) // nor has this
	default:
		p.takeBye()
	}
	return <-p.dataOver
}

// takeBye takes in that the peer has closed.
func (p *pair) takeBye() {
	p.part()
	p.writeUrgent(wire.Header{Kind: wire.Ack}, nil)
	if p.t.box.Cause() == nil && p.writing.Load() {
		// What is still being sent to the peer will not be read: end the Send.
		_ = p.data.raw.SetWriteDeadline(time.Unix(1, 0))
	}
}

// part notes that the peer sends nothing any more.
func (p *pair) part() {
	p.t.box.End(p.rank, p.lost("closed"))
	close(p.left)
	p.settle()
}

// readFrames returns the frame by which the peer ends, Bye or End.
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
				p.t.box.Signal(p.rank, msg)
			}
		case wire.Probe:
			err = p.gauge.Skip(p.data.in, int(h.Length))
		case wire.Share:
			// The first rank of the host had given its verdict before it came.
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

// readMessage reads the payload of a message to where the mailbox wants it. When that has
// failed the payload is thrown away, as a bye may follow.
func (p *pair) readMessage(h wire.Header) error {
	call, err := transport.DecodeCall(h.Call[:])
	if err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	taken, err := p.fill(transport.Envelope{Comm: h.Comm, Seq: h.Seq, Call: call}, int(h.Length))
	switch {
	case !taken:
		_, err = io.CopyN(io.Discard, p.data.in, int64(h.Length))
	case err == nil && h.Length >= turnFrom:
		runtime.Gosched()
	}
	return err
}

// fill reads the payload of a message into the mailbox, which takes none when it has failed.
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
	if err := p.gauge.Fill(p.data.in, m.Buf); err != nil {
		m.Abort()
		return true, err
	}
	m.Done()
	return true, nil
}

// turnFrom is how long a message is, in bytes, after which the reader lets others have their
// turn: who has waited for it finds it in the cache, and asks for the next one, which then goes
// straight to where it is wanted. A reader that read on would have to keep that for later, and
// it would be copied.
const turnFrom = 64 << 10

// readUrgent takes in revocations and answers to bye or revocation until the stream or the view on it
// ends. first is what came first. It reports whether both sides have ended in good order.
func (p *pair) readUrgent(first urgentFrame) bool {
	f, bye := first, false
	for f.err == nil && f.Kind != wire.End && p.takeUrgent(f) {
		bye = bye || f.Kind == wire.Bye
		f = p.urgent.nextUrgent()
	}
	// Who has closed ends this stream when its messages were taken in. Where the data stream breaks before
	// its bye, there were none.
	p.parted.Store(bye && f.err == nil && f.Kind == wire.End)
	// A paused reader of the data stream must see that this has ended, too.
	p.t.box.LiftLimit(p.rank)
	p.settle()
	close(p.told)
	return f.err == nil && f.Kind == wire.End && <-p.urgentOver
}

// takeUrgent takes in a frame, and returns false if it is none that belongs there. A bye
// here announces the one on the data stream.
func (p *pair) takeUrgent(f urgentFrame) bool {
	switch f.Kind {
	case wire.Revoke:
		p.t.Revoke(transport.DecodeCause(p.rank, f.body))
		p.writeUrgent(wire.Header{Kind: wire.Ack}, nil)
		p.settle()
	case wire.Ack:
		p.settle()
	case wire.Bye:
		// The peer waits until all it sent is taken in, which is not much more.
		p.t.box.LiftLimit(p.rank)
	default:
		p.t.Revoke(p.lost(fmt.Sprintf("%v: %v on the urgent stream", errProtocol, f.Kind)))
		return false
	}
	return true
}
