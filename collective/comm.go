package collective

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// Options configure a communicator and the communicators made from it. Their values must be
// equal at all ranks, except the functions.
type Options struct {
	// Segment is the size in bytes of the segments in which large transfers are pipelined;
	// a multiple of 8; 0 means 256 KiB.
	Segment int
	// Cost is the cost model from which Auto computes its choice; the zero value means
	// DefaultCost.
	Cost Cost
	// OnStall, if set, is called with each report of a call that waits unusually long, by a
	// goroutine of the communicator. It must not call the communicator and should return soon.
	OnStall func(Stall)
	// Step, if set, returns the current step of the program, or 0 before the first. With Step,
	// OnStall also gets a report if a step spends an unusually long time in all its calls together.
	// Step is called by the same goroutine as OnStall.
	Step func() int64
	// OnBegin, if set, is called when a call begins at this rank, by the goroutine that
	// makes the call.
	OnBegin func()
	// OnError, if set, is called with the error of a failed call at this rank before the
	// caller gets the error, by the same goroutine: in a blocking call, or in Handle.Wait.
	// Calls on communicators from Split and Dup, which other goroutines may use, are not
	// reported.
	OnError func(error)
	// Sites is the site of each rank, by rank: ranks of one site are connected by a faster network
	// than ranks of different sites. It is nil if the sites are not known. If it is set, a
	// commutative AllReduce is hierarchical after Calibrate: only one rank of each site exchanges
	// sums with the other sites.
	Sites []int
}

// maxSegment is the maximum of Options.Segment, in bytes. No message of a transport is longer.
const maxSegment = 16 << 20

// Comm is a communicator: a group of ranks and their common sequence of calls. A Comm is immutable
// after its construction and Calibrate. Several Comms may share one sequence (see With). A Comm and
// the Comms from its Split and Dup share one transport.
type Comm struct {
	*endpoint
	group
	callOptions
	seq   *sequence // shared by all Comms of this communicator, which differ in callOptions
	id    uint64    // Envelope.Comm of its messages
	lane  *lane     // lane in the memory that all ranks share; nil if the ranks share none
	level *level    // hierarchy of the ranks; nil if there is none, or if there is a lane
}

// endpoint is the state that all communicators over one transport share.
type endpoint struct {
	t        transport.Transport
	invalid  bool // there is no transport; see orInvalid
	self     int  // rank in the transport
	ranks    int  // number of ranks of the transport
	opts     Options
	stop     chan struct{} // closed by close; ends the watchdog
	shared   *memory       // memory of the ranks of this host; nil if there is none
	topology topology
	pools    pools // scratch memory of calls

	mu sync.Mutex // guards the following fields and the tracker
	tracker
	closed    bool                 // the communicator from New was closed
	cause     error                // the first cause of a revocation at this rank
	sequences map[uint64]*sequence // by ID of the communicator
}

// sequence is the state that a communicator shares with the results of its With. It is guarded by
// endpoint.mu.
type sequence struct {
	lastSeq    uint32                   // number of collective calls so far; it may wrap, as only its bits below pointBit are used
	running    *operation               // the blocking collective call in progress; nil for none
	parent     *sequence                // sequence of the communicator from which Split made this communicator; nil if Split did not make it
	closed     bool                     // Comm.Close was called
	part       bool                     // its calls are parts of the calls of another communicator
	pointLocks map[pointKey]*ticketLock // ticket locks of Sends and Recvs in progress
	matchings  []*matching              // receives and Probes that have not chosen their message, the oldest first
	queue      queue                    // of non-blocking calls in shared memory
}

// next returns the number of the next collective call.
func (s *sequence) next() uint32 {
	s.lastSeq++
	return s.lastSeq &^ pointBit
}

// isClosed reports whether the communicator, or a communicator from which Split made it, was
// closed.
func (s *sequence) isClosed() bool {
	for ; s != nil; s = s.parent {
		if s.closed {
			return true
		}
	}
	return false
}

// pointBit marks the Seq of point-to-point messages. The bits below hold the user's tag;
// without the mark they hold the number of a collective call.
const pointBit = 1 << 31

// New returns the communicator of all size ranks over t; rank is the rank of the caller.
// The communicator owns t from now on; Close ends both.
func New(t transport.Transport, rank, size int, o Options) (*Comm, error) {
	if t == nil {
		return nil, fmt.Errorf("collective: new: %w: the transport is nil", ErrArgument)
	}
	if size < 1 || rank < 0 || rank >= size {
		return nil, fmt.Errorf("collective: new: %w: rank %d of %d ranks, want a rank of 0 or more and less than the number of ranks", ErrArgument, rank, size)
	}
	if o.Segment == 0 {
		o.Segment = 256 << 10
	}
	if o.Segment < 8 || o.Segment > maxSegment || o.Segment%8 != 0 {
		return nil, fmt.Errorf("collective: new: %w: segment of %d bytes, want a multiple of 8 from 8 to %d", ErrArgument, o.Segment, maxSegment)
	}
	if o.Sites != nil && len(o.Sites) != size {
		return nil, fmt.Errorf("collective: new: %w: Options.Sites has %d ranks, want %d", ErrArgument, len(o.Sites), size)
	}
	o.Sites = slices.Clone(o.Sites)
	if o.Cost == (Cost{}) {
		o.Cost = DefaultCost()
	}
	ep := &endpoint{
		t: t, self: rank, ranks: size, opts: o, stop: make(chan struct{}), topology: topology{sites: o.Sites},
		tracker:   tracker{started: time.Now(), calls: make(map[*operation]struct{})},
		sequences: make(map[uint64]*sequence),
	}
	// Only some transports share memory, and only in views whose ranks have agreed on it.
	if s, ok := t.(transport.Sharer); ok {
		ep.shared = memoryOf(s.Shared())
	}
	c := &Comm{endpoint: ep, group: group{rank: rank, size: size}, callOptions: callOptions{segment: o.Segment}, seq: ep.sequence(0, nil)}
	c.initTopology(0)
	ep.working.Add(1)
	go func() {
		defer ep.working.Done()
		newWatchdog(ep).run()
	}()
	return c, nil
}

// sequence returns the sequence of the communicator with an ID, and creates it if
// necessary.
func (ep *endpoint) sequence(id uint64, parent *sequence) *sequence {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	s := ep.sequences[id]
	if s == nil {
		s = &sequence{parent: parent}
		ep.sequences[id] = s
	}
	return s
}

// isValid reports whether c was made by New, Split or Dup.
func (c *Comm) isValid() bool { return c != nil && c.endpoint != nil && !c.invalid }

// orInvalid returns c, or for a nil or zero Comm a communicator of one rank without a transport. So
// the plan of a call needs no special case; begin then refuses the call with errNil.
func (c *Comm) orInvalid() *Comm {
	if c.isValid() {
		return c
	}
	return &Comm{endpoint: &endpoint{invalid: true}, group: group{size: 1}}
}

// errNil is the error of calls on a nil or zero communicator.
var errNil = fmt.Errorf("%w: the communicator is nil, or was not made by New, Split or Dup", ErrArgument)

// Rank returns the caller's rank, from 0 to Size()-1; -1 if c is nil.
func (c *Comm) Rank() int {
	if !c.isValid() {
		return -1
	}
	return c.rank
}

// Size returns the number of ranks, 0 if c is nil.
func (c *Comm) Size() int {
	if !c.isValid() {
		return 0
	}
	return c.size
}

// Revoke makes every pending and later call fail at every rank that can be reached, on this
// communicator and all others over the same transport. The first cause at a rank is kept; later
// ones are ignored. Revoke does not wait.
func (c *Comm) Revoke(cause error) {
	if c.isValid() {
		c.revoke(cause)
	}
}

// Err returns the cause of the communicator's revocation, or nil if no call at this rank
// has seen a revocation.
func (c *Comm) Err() error {
	if !c.isValid() {
		return errNil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// Close ends the communicator and all communicators made from it. Later calls fail with ErrClosed
// at this rank. Another rank that waits for this rank in such a call gets an error and revokes.
//
// For a communicator from Split or Dup that is all: Close does not wait, calls in progress run to
// their end, and the other communicators over the same transport are not affected. Close of the
// communicator from New also ends the transport: the transport delivers the messages that were
// sent, pending calls fail with ErrClosed, and all goroutines have ended when Close returns.
//
// A second Close does nothing. Close of a nil Comm does nothing either: Split returns nil
// to a rank with a negative color.
func (c *Comm) Close() error {
	if !c.isValid() {
		return nil
	}
	if c.seq.parent == nil {
		return c.endpoint.close()
	}
	c.Finish()
	return nil
}

// Finish declares that this rank makes no more calls on the communicator and on all communicators
// made from it: later calls fail with ErrClosed at this rank. Another rank that waits for this rank
// in such a call gets an error that names this rank, and revokes. Finish does not wait, calls in
// progress run to their end, and messages to this rank still arrive. Close is necessary as before.
func (c *Comm) Finish() {
	if !c.isValid() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq.closed = true
}

// close ends the transport and all communicators over it. Pending calls fail with ErrClosed. The
// memory that the ranks share is released only after the last goroutine of a call has ended,
// because a call may still use this memory. A second close does nothing and returns no error.
func (ep *endpoint) close() error {
	ep.mu.Lock()
	first := !ep.closed
	ep.closed = true
	ep.promote()
	ep.mu.Unlock()
	if !first {
		return nil
	}
	close(ep.stop)
	err := ep.t.Close()
	ep.working.Wait()
	if ep.shared != nil {
		err = errors.Join(err, ep.shared.Release())
	}
	if err != nil {
		return fmt.Errorf("collective: close: %w", err)
	}
	return nil
}

// revoke revokes the transport because of err. The cause is err itself if other ranks can decode it
// (*PeerError, *MismatchError), and otherwise an *AbortError of this rank with the text of err.
func (ep *endpoint) revoke(err error) {
	cause := causeOf(ep.self, err)
	ep.mu.Lock()
	if ep.cause == nil {
		ep.cause = cause
	}
	ep.mu.Unlock()
	ep.t.Revoke(cause)
}
