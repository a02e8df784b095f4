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
	"fmt"
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
