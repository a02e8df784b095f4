package collective

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/collective/internal/stall"
	"github.com/elrun/elrun/collective/transport"
)

// Options configure a communicator and those made from it. All ranks must give
// equal ones, but for the functions.
type Options struct {
	// Segment is the size in bytes of the pieces in which large transfers are
	// pipelined; a multiple of 8; 0 means 256 KiB.
	Segment int
	// Cost is what Auto reckons with; the zero value means DefaultCost.
	Cost Cost
	// OnStall, if set, is told of calls that wait unusually long, from a goroutine
	// of the communicator. It must not call the communicator and should be quick.
	OnStall func(Stall)
	// Step, if set, tells which step of a program is going on, 0 for none yet. Then all the
	// time that a step spends in calls is judged, not only that of each call. It is called
	// as OnStall is.
	Step func() int64
	// OnBegin, if set, is called when a call begins here, by the goroutine that makes it.
	OnBegin func()
	// OnError, if set, is called with the error of a call that failed here, before the caller
	// gets it and by the same goroutine: that of a blocking call, or of Handle.Wait. Calls on
	// communicators from Split and Dup, which other goroutines may use, are left out.
	OnError func(error)
	// Sites numbers, for each rank, the site at which it is: ranks of one site reach each other
	// over a faster network than those of two. It is nil where that is not known. AllReduce then
	// lets what a site has summed up pass to the others by one rank of it.
	Sites []int
}

// maxSegment bounds a segment: no message of a transport is longer.
const maxSegment = 16 << 20

// Comm is a communicator: a group of ranks and their common sequence of calls.
type Comm struct {
	*world
	seq       *sequence
	id        uint64
	rank      int
	size      int
	ranks     []int     // ranks of the transport, by rank here; nil if they are the same
	algorithm Algorithm // this one and those up to segment: see CallOptions
	purpose   string
	priority  int32
	segment   int    // of interruptible calls; 0 for that of the options
	lane      *lane  // of the memory that all ranks share; nil if they share none
	level     *level // of groups that they fall into; nil if there is none, or lane is there
	order     ringOrder
}

// world is what all communicators over one transport share.
type world struct {
	t       transport.Transport
	nobody  bool // see orNobody
	self    int  // rank in the transport
	ranks   int  // of the transport
	opts    Options
	started time.Time // origin of the times below
	stop    chan struct{}
	working sync.WaitGroup // the watch and all calls on which books are kept

	shared *memory // memory of this host's ranks; nil if there is none

	mu      sync.Mutex
	lanes   int   // of the shared memory that are taken
	leaders []int // by rank of the transport, as divide has it; nil before
	closed  bool
	cause   error                   // of the first revocation seen here
	calls   map[*operation]struct{} // in progress, but for brief
	brief   *operation              // in progress, and not noticed by the watch; see operation.brief
	spare   *operation              // a brief one that has ended, for the next
	briefly bool                    // there has been a brief call since the watch looked last
	seqs    map[uint64]*sequence    // by communicator
	limit   stall.Limit

	// The watch owns these.
	chase stall.Chase
	said  said

	memory [64]sync.Pool // of *[]uint64 of 1<<i words
}

// sequence is the state that all forms of one communicator share (see With).
// It is used under the world's lock.
type sequence struct {
	begun   uint32          // collective calls; modulo pointBit, so it may wrap
	running *operation      // the blocking collective call in progress; nil for none
	parent  *sequence       // of the communicator from which Split made this one; nil for none
	closed  bool            // by Close
	lines   map[line]*turns // of Sends and Recvs in progress
	queue   queue           // of non-blocking calls in shared memory
}

// next returns the place of the next collective call.
func (s *sequence) next() uint32 {
	s.begun++
	return s.begun &^ pointBit
}

// over reports whether the communicator was closed, or one that it was made from.
func (s *sequence) over() bool {
	for ; s != nil; s = s.parent {
		if s.closed {
			return true
		}
	}
	return false
}

// pointBit marks the Seq of point-to-point messages; below it are the user's tag,
// or the number of a collective call.
const pointBit = 1 << 31

// New returns the communicator of all size ranks over t, of which the caller is
// rank. It owns t from now on; Close ends both.
func New(t transport.Transport, rank, size int, o Options) (*Comm, error) {
	if t == nil {
		return nil, fmt.Errorf("collective: new: %w: the transport is nil", ErrArgument)
	}
	if size < 1 || rank < 0 || rank >= size {
		return nil, fmt.Errorf("collective: new: %w: rank %d of %d", ErrArgument, rank, size)
	}
	if o.Segment == 0 {
		o.Segment = 256 << 10
	}
	if o.Segment < 8 || o.Segment > maxSegment || o.Segment%8 != 0 {
		return nil, fmt.Errorf("collective: new: %w: segment of %d bytes, want a multiple of 8 from 8 to %d", ErrArgument, o.Segment, maxSegment)
	}
	if o.Sites != nil && len(o.Sites) != size {
		return nil, fmt.Errorf("collective: new: %w: the sites of %d ranks, want %d", ErrArgument, len(o.Sites), size)
	}
	o.Sites = slices.Clone(o.Sites)
	if o.Cost == (Cost{}) {
		o.Cost = DefaultCost()
	}
	w := &world{
		t: t, self: rank, ranks: size, opts: o,
		started: time.Now(), stop: make(chan struct{}),
		calls: make(map[*operation]struct{}), seqs: make(map[uint64]*sequence),
	}
	w.chase = stall.Chase{Self: rank, Ranks: size, Send: w.signal}
	if s, ok := t.(transport.Sharer); ok {
		w.shared = memoryOf(s.Shared())
	}
	c := &Comm{world: w, seq: w.sequence(0, nil), rank: rank, size: size}
	c.settle(0)
	w.working.Add(1)
	go func() {
		defer w.working.Done()
		w.watch()
	}()
	return c, nil
}

// sequence returns that of communicator id, which it makes if need be.
func (w *world) sequence(id uint64, parent *sequence) *sequence {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.seqs[id]
	if s == nil {
		s = &sequence{parent: parent}
		w.seqs[id] = s
	}
	return s
}

// made reports whether c came from New, Split or Dup.
func (c *Comm) made() bool { return c != nil && c.world != nil && !c.nobody }

// orNobody returns c, or a communicator for the description of a call if c is none: begin
// refuses the call.
func (c *Comm) orNobody() *Comm {
	if c.made() {
		return c
	}
	return &Comm{world: &world{nobody: true}, size: 1}
}

// errNil is the error of calls on no communicator.
var errNil = fmt.Errorf("%w: the communicator is nil, or was not made by New, Split or Dup", ErrArgument)

// Rank returns the caller's rank, from 0 to Size()-1; -1 if c is nil.
func (c *Comm) Rank() int {
	if !c.made() {
		return -1
	}
	return c.rank
}

// Size returns the number of ranks, 0 if c is nil.
func (c *Comm) Size() int {
	if !c.made() {
		return 0
	}
	return c.size
}

// Revoke makes every pending and later call fail at every rank that can be reached,
// on this communicator and all others over the same transport. Only the first
// cause counts. It does not wait.
func (c *Comm) Revoke(cause error) {
	if c.made() {
		c.revoke(cause)
	}
}

// Err returns why the communicator was revoked, as far as a call here has seen it,
// or nil.
func (c *Comm) Err() error {
	if !c.made() {
		return errNil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// Close ends the communicator and all that were made from it: later calls fail with
// ErrClosed here, and revoke at the ranks that wait for this one in such a call.
//
// Of a communicator from Split or Dup that is all: it does not wait, calls in progress go on
// to their end, and the others over the same transport are as before. Close of the one from
// New ends the transport as well: what was sent is handed over, pending calls fail with
// ErrClosed, and all goroutines have ended when it returns.
//
// Closing again does nothing, nor does Close of nil, which is what Split returns to a rank
// without a color.
func (c *Comm) Close() error {
	if !c.made() {
		return nil
	}
	if c.seq.parent == nil {
		return c.closeAll()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq.closed = true
	return nil
}

// isClosed reports whether c was closed, or one that it was made from.
func (c *Comm) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed || c.seq.over()
}

// closeAll ends the transport and all communicators over it.
func (c *Comm) closeAll() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.notice()
	c.mu.Unlock()
	if !first {
		return nil
	}
	close(c.stop)
	err := c.t.Close()
	c.working.Wait()
	if c.shared != nil {
		err = errors.Join(err, c.shared.Release())
	}
	if err != nil {
		return fmt.Errorf("collective: close: %w", err)
	}
	return nil
}

// revoke passes on the cause itself where it is one that other ranks understand,
// and otherwise the text of what happened here.
func (w *world) revoke(err error) {
	cause := causeOf(w.self, err)
	w.mu.Lock()
	if w.cause == nil {
		w.cause = cause
	}
	w.mu.Unlock()
	w.t.Revoke(cause)
}

// inWorld translates a rank of c to one of the transport.
func (c *Comm) inWorld(rank int) int {
	if c.ranks == nil {
		return rank
	}
	return c.ranks[rank]
}
