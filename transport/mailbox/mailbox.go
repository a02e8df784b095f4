// Package mailbox matches arriving messages with the receives that ask for them. All
// transports share it, so that they differ only in the way in which bytes travel.
//
// A transport has one Box. The goroutine that brings a message is the reader of a stream,
// or a sender in the same process. It waits for room (backpressure), accepts the message,
// fills its buffer and completes it:
//
//	err := box.WaitRoom(from, nil, nil)
//	m, err := box.Accept(from, envelope, size)
//	if _, err := io.ReadFull(stream, m.Buf); err != nil {
//		m.Abort()           // and let the Box fail
//	}
//	m.Done()
//
// If a matching receive is posted already, m.Buf is the buffer of that receive, and no byte
// is copied. Otherwise m.Buf is pooled memory, from which a later receive copies:
//
//	          Accept, receive posted
//	(none) ------------------------------> direct --Done--> received
//	   |
//	   | Accept                 Recv
//	   +-----------> arriving ----------> claimed --Done--> copied by Recv
//	                    |
//	                    | Done             Recv
//	                    +--------> arrived ----------> copied by Recv
//
// Abort, in place of Done, ends the message. The receive that waits for an aborted message
// returns when the Box fails, with the cause of the failure.
//
// Invariants: under one key (source, Comm, Seq) there are waiting messages or posted
// receives, never both. No mutex is held while a goroutine blocks. A message allocates
// nothing once pools and maps have grown.
package mailbox

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
)

// DefaultLimit is the usual limit, in bytes, of the messages from one source that a box holds and
// that no receive has asked for. Beyond the limit the reader of that source pauses.
const DefaultLimit = 4 << 20

// signalQueue is the number of signals that wait for their reader. Further signals are
// lost.
const signalQueue = 256

// Box is the receiving half of a transport: the messages and receives of one rank, by
// source. All methods except Share are safe for concurrent use.
type Box struct {
	self    int         // the rank of the box
	revoke  func(error) // see New
	sources []source    // by rank
	signals chan transport.Signal
	shared  *transport.Shared // see Share; nil for none

	found atomic.Uint32 // number of messages that Peek has returned

	cause  atomic.Pointer[error] // set once, by Fail
	failed chan struct{}         // closed when cause is set

	// receives is a pool of *receive.
	receives sync.Pool
	// messages is a pool of Messages, with memory for payloads that no receive has asked for yet.
	messages pool
}

// New returns the box of rank self among n ranks. limit bounds, in bytes, the messages from each
// source that the box holds and that no receive has asked for. The messages of a rank to itself
// have no limit, as their sender and receiver may be the same goroutine.
//
// The box calls revoke, without locks held, with the reason when a receive is mismatched,
// is cancelled, or waits for a source that has ended. revoke must call Fail before it
// returns, and must interrupt the streams from which accepted messages are being filled.
func New(self, n, limit int, revoke func(error)) *Box {
	b := &Box{
		self:    self,
		revoke:  revoke,
		sources: make([]source, n),
		signals: make(chan transport.Signal, signalQueue),
		failed:  make(chan struct{}),
	}
	b.receives.New = func() any { return &receive{ready: make(chan error, 1)} }
	for i := range b.sources {
		s := &b.sources[i]
		s.slots = make(map[key]slot)
		s.self, s.rank, s.limit = self, i, limit
		s.unbounded = i == self
		s.wakeups = make(chan struct{}, 1)
	}
	return b
}

// Check returns an error that wraps collective.ErrArgument unless rank is a rank of the box.
// The text of the error names the call by op.
func (b *Box) Check(op string, rank int) error {
	if rank < 0 || rank >= len(b.sources) {
		return fmt.Errorf("%s: rank %d is none of the %d ranks: %w", op, rank, len(b.sources), collective.ErrArgument)
	}
	return nil
}

// Fail makes every pending and later Recv, Accept and WaitRoom fail with cause, and returns
// true. If the box has failed before, Fail changes nothing and returns false: the first
// cause stays.
func (b *Box) Fail(cause error) bool {
	if !b.cause.CompareAndSwap(nil, &cause) {
		return false
	}
	// The shared memory is revoked before the other ranks can receive the cause. From then on they
	// do not report the death of a rank in place of this cause.
	if b.shared != nil {
		b.shared.Memory.Revoke()
	}
	close(b.failed)
	return true
}

// Share connects the box with memory that this rank shares: the failure of the box and the
// end of a source end the calls in that memory as well. Call it before all other methods.
func (b *Box) Share(s *transport.Shared) { b.shared = s }

// Shared returns the argument of Share, or nil.
func (b *Box) Shared() *transport.Shared { return b.shared }

// Cause returns the cause of the first Fail, or nil.
func (b *Box) Cause() error {
	if p := b.cause.Load(); p != nil {
		return *p
	}
	return nil
}

// WaitRoom waits until the next message of rank from may be accepted (backpressure). There is no
// room while the box holds more than the limit from that rank and no receive waits for a message
// from that rank. Then the reader should leave further messages in the stream. WaitRoom returns the
// cause of the box if the box fails. It also returns nil when stop1 or stop2 is closed; the caller
// checks these channels itself. Each of the two may be nil.
func (b *Box) WaitRoom(from int, stop1, stop2 <-chan struct{}) error {
	s := &b.sources[from]
	for {
		open, pass := s.addSleeper()
		if pass {
			s.wake()
		}
		if open {
			return b.Cause()
		}
		stop := false
		select {
		case <-s.wakeups:
		case <-b.failed:
			stop = true
		case <-stop1:
			stop = true
		case <-stop2:
			stop = true
		}
		s.removeSleeper()
		if stop {
			return b.Cause()
		}
	}
}

// Accept returns a message of size bytes from rank from under e, which the caller must fill. It
// never blocks. If the box has failed it returns the cause. If the waiting receive has another call
// or length, Accept revokes and returns the cause.
//
// Messages under one key are received in the order of Accept.
func (b *Box) Accept(from int, e transport.Envelope, size int) (*Message, error) {
	if cause := b.Cause(); cause != nil {
		return nil, cause
	}
	s := &b.sources[from]
	if r := s.popReceive(keyOf(e)); r != nil {
		return b.acceptDirect(from, e, size, r)
	}
	m := b.messages.get(size)
	m.box, m.from, m.env = b, from, e
	r := s.deliver(m)
	if r == nil {
		return m, nil
	}
	// The receive was posted after popReceive, while memory was allocated.
	b.messages.put(m)
	return b.acceptDirect(from, e, size, r)
}

// acceptDirect returns a message whose Buf is the buffer of r. The caller has taken r out
// of its slot.
func (b *Box) acceptDirect(from int, e transport.Envelope, size int, r *receive) (*Message, error) {
	if err := b.sources[from].compare(r, e, size); err != nil {
		b.revoke(err)
		r.ready <- err
		return nil, b.Cause()
	}
	m := b.messages.get(0)
	m.box, m.from, m.env = b, from, e
	m.Buf, m.waiter, m.direct = r.buf, r, true
	return m, nil
}

// LiftLimit lifts the limit of rank from, so that a paused reader reads on to the end of a
// stream that is known to end.
func (b *Box) LiftLimit(from int) {
	if b.sources[from].liftLimit() {
		b.sources[from].wake()
	}
}

// End reports that no further message of rank from will come. Receives of messages that
// came before still succeed. Every other pending or later receive from that rank revokes
// with err.
func (b *Box) End(from int, err error) {
	if b.shared != nil {
		if local := slices.Index(b.shared.Ranks, from); local >= 0 {
			b.shared.Memory.Gone(local)
		}
	}
	for r := b.sources[from].end(err); r != nil; {
		next := r.next // read before the send below, after which r belongs to its receiver
		r.next = nil
		r.ready <- err
		r = next
	}
}

// Failed returns a channel that is closed when the box fails.
func (b *Box) Failed() <-chan struct{} { return b.failed }

// Awaits reports whether a receive from rank from under e is posted, and its message has not begun
// to arrive.
func (b *Box) Awaits(from int, e transport.Envelope) bool { return b.sources[from].awaits(keyOf(e)) }

// Full reports whether WaitRoom would wait.
func (b *Box) Full(from int) bool { return b.sources[from].isFull() }

// Signal queues a copy of data as a signal of rank from. overtook is set if the signal may have
// overtaken messages. The signal is lost if the queue is full.
func (b *Box) Signal(from int, data []byte, overtook bool) {
	select {
	case b.signals <- transport.Signal{From: from, Data: append([]byte(nil), data...), Overtook: overtook}:
	default:
	}
}

// Signals returns the channel of queued signals. It is never closed.
func (b *Box) Signals() <-chan transport.Signal { return b.signals }

// Recv fills buf with the next message of rank from under the Comm and Seq of e. Every
// error except ErrArgument revokes; the returned error is then the first cause of the box.
//
// When Recv returns, no goroutine writes to buf any more. So a Recv that is ended by its
// ctx or by a failure while its message arrives waits for the Done or Abort of that
// message.
func (b *Box) Recv(ctx context.Context, from int, e transport.Envelope, buf []byte) error {
	return b.Post(from, e, buf).Wait(ctx)
}

// Post begins a Recv and does not wait for the message.
func (b *Box) Post(from int, e transport.Envelope, buf []byte) transport.Posted {
	r := b.receives.Get().(*receive)
	r.box, r.from, r.env, r.buf = b, from, e, buf
	if r.err = b.Check("receive", from); r.err == nil {
		r.err = b.Cause()
	}
	if r.err == nil {
		r.match()
	}
	return r
}

// wait waits until the end of r was reported, or r was withdrawn.
func (b *Box) wait(ctx context.Context, from int, r *receive) error {
	select {
	case err := <-r.ready:
		// err is nil after a complete message.
		if err != errAborted {
			return err
		}
		// The goroutine that aborted the message makes the box fail, and may need time to find the
		// cause.
		select {
		case <-b.failed:
			return b.Cause()
		case <-ctx.Done():
			return Cancelled(ctx, b.self, fmt.Sprintf("receive from rank %d", from))
		}
	case <-ctx.Done():
		b.revoke(Cancelled(ctx, b.self, fmt.Sprintf("receive from rank %d", from)))
	case <-b.failed:
	}
	// withdraw fails if another goroutine has taken r out of its slot: that goroutine fills buf
	// now.
	if !b.sources[from].withdraw(r) {
		<-r.ready // until then another goroutine may write to the buffer
	}
	return b.Cause()
}

// Peek waits until the box holds a message that matches accepts, and returns its sender and its
// envelope. The message stays in the box. See transport.Transport.Peek.
func (b *Box) Peek(from []int, stop <-chan struct{}, matches func(from int, e transport.Envelope) bool) (rank int, e transport.Envelope, err error) {
	for _, rank := range from {
		if err := b.Check("peek", rank); err != nil {
			return -1, e, err
		}
	}
	wakeup := make(chan struct{}, 1)
	b.addPeeker(from, wakeup)
	defer b.removePeeker(from, wakeup)
	for {
		if cause := b.Cause(); cause != nil {
			return -1, e, cause
		}
		rank, e, err = b.find(from, matches)
		if err != nil {
			b.revoke(err)
			return -1, e, b.Cause()
		}
		if rank >= 0 {
			return rank, e, nil
		}
		select {
		case <-wakeup:
		case <-stop:
			return -1, e, nil
		case <-b.failed:
		}
	}
}

// find returns the first message of some sources that matches accepts; rank is -1 if there is none.
// The sources take turns in being the first, so that a source with many messages does not keep the
// others waiting. The error says that no message can come any more.
func (b *Box) find(from []int, matches func(from int, e transport.Envelope) bool) (rank int, e transport.Envelope, err error) {
	first := int(b.found.Load() % uint32(len(from)))
	open := false
	for i := range from {
		rank := from[(first+i)%len(from)]
		s := &b.sources[rank]
		e, ok, ended := s.find(matches)
		if ok {
			b.found.Add(1)
			return rank, e, nil
		}
		// The rank of the box itself never ends. If it is one of several sources, it counts as ended
		// together with the others: nearly always a message of another rank is awaited.
		if ended == nil && (rank != b.self || len(from) == 1) {
			open = true
		}
		if ended != nil {
			err = ended
		}
	}
	if open {
		err = nil
	}
	return -1, e, err
}

// addPeeker registers a channel that gets a token when a message of one of the sources arrives or
// when a source ends. While a goroutine peeks, readers go on, as for a posted receive.
func (b *Box) addPeeker(from []int, wakeup chan struct{}) {
	for _, rank := range from {
		s := &b.sources[rank]
		s.mu.Lock()
		s.waiting++
		s.peekers = append(s.peekers, wakeup)
		wake := s.wakeLocked()
		s.mu.Unlock()
		if wake {
			s.wake()
		}
	}
}

// removePeeker undoes addPeeker.
func (b *Box) removePeeker(from []int, wakeup chan struct{}) {
	for _, rank := range from {
		s := &b.sources[rank]
		s.mu.Lock()
		s.waiting--
		s.peekers = slices.DeleteFunc(s.peekers, func(c chan struct{}) bool { return c == wakeup })
		s.mu.Unlock()
	}
}
