// Package mailbox matches arriving messages with the receives that ask for them. All
// transports share it, so that they differ only in how bytes travel.
//
// A transport has one Box. Whoever brings a message, be it the reader of a stream or a
// sender in the same process, waits for room, accepts, fills and is done:
//
//	err := box.WaitRoom(from, nil, nil)
//	m, err := box.Accept(from, envelope, size)
//	if _, err := io.ReadFull(stream, m.Buf); err != nil {
//		m.Abort()           // and let the Box fail
//	}
//	m.Done()
//
// Where a receive is posted already, m.Buf is its destination and the bytes are copied
// nowhere. Otherwise m.Buf is pooled memory from which a later receive copies:
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
// Abort, in place of Done, ends the message; its receive then waits for the Box to
// fail, whose cause it returns.
//
// Nothing is allocated per message once pools and maps have grown. No mutex is held
// while a goroutine blocks.
package mailbox

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
)

// DefaultLimit is how many bytes of one source are held before somebody asks for them
// and its reader pauses.
const DefaultLimit = 4 << 20

// signalQueue is how many signals wait for their reader before new ones are lost.
const signalQueue = 256

// Box is the receiving half of a transport. All methods are safe for concurrent use.
type Box struct {
	self    int
	revoke  func(error)
	sources []source
	signals chan transport.Signal
	shared  *transport.Shared // nil without

	cause  atomic.Pointer[error]
	failed chan struct{} // closed when cause is set

	receives sync.Pool // of *receive
	messages pool
}

// New returns the box of rank self among n. limit is the number of bytes that are
// held per source unasked for; a rank's messages to itself have none, as their sender
// and receiver may be the same goroutine.
//
// revoke is called, without locks held, with the reason when a receive is mismatched,
// cancelled, or waits for a source that has ended. It must call Fail before it
// returns, and break whatever Accepted messages are being filled from.
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
		s.room = make(chan struct{}, 1)
	}
	return b
}

// Check returns an ErrArgument unless rank is one of the box's. op names the call.
func (b *Box) Check(op string, rank int) error {
	if rank < 0 || rank >= len(b.sources) {
		return fmt.Errorf("%s: rank %d of %d: %w", op, rank, len(b.sources), collective.ErrArgument)
	}
	return nil
}

// Fail makes every pending and later Recv, Accept and WaitRoom fail with cause and
// reports true. If the box has failed before it changes nothing and reports false:
// the first cause stays.
func (b *Box) Fail(cause error) bool {
	if !b.cause.CompareAndSwap(nil, &cause) {
		return false
	}
	if b.shared != nil {
		b.shared.Memory.Revoke() // before others are told, to whom the cause counts then, and no death
	}
	close(b.failed)
	return true
}

// Share lets the calls in a memory that this rank shares fail and end as those of the box
// do. It comes before all else.
func (b *Box) Share(s *transport.Shared) { b.shared = s }

// Shared returns what Share was given, or nil.
func (b *Box) Shared() *transport.Shared { return b.shared }

// Cause returns what Fail was first called with, or nil.
func (b *Box) Cause() error {
	if p := b.cause.Load(); p != nil {
		return *p
	}
	return nil
}

// Failed is closed once the box has failed.
func (b *Box) Failed() <-chan struct{} { return b.failed }

// End says that nothing more will come from rank from. Messages that it sent before can
// still be received; every other pending or later Recv from it revokes with err.
func (b *Box) End(from int, err error) {
	if b.shared != nil {
		if place := slices.Index(b.shared.Ranks, from); place >= 0 {
			b.shared.Memory.Gone(place)
		}
	}
	for r := b.sources[from].end(err); r != nil; {
		next := r.next // r is its owner's again as soon as it is told
		r.next = nil
		r.ready <- err
		r = next
	}
}

// Unbound lifts the limit of rank from, so that its reader, should it pause, reads on
// to the end of a stream that is known to end.
func (b *Box) Unbound(from int) {
	if b.sources[from].unbound() {
		b.sources[from].wake()
	}
}

// Signal queues a copy of data as a signal of rank from. It is lost when too many wait.
func (b *Box) Signal(from int, data []byte) {
	select {
	case b.signals <- transport.Signal{From: from, Data: append([]byte(nil), data...)}:
	default:
	}
}

// Signals returns the channel of signals. It is never closed.
func (b *Box) Signals() <-chan transport.Signal { return b.signals }
