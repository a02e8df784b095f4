package collective

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/elrun/elrun/collective/flight"
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
	// OnStallOver, if set, is called when a call no longer waits of which OnStall has got a report: it
	// makes progress again, or has ended. It gets the last report, with the whole time of the wait in
	// Since, and is called by the same goroutine as OnStall.
	OnStallOver func(Stall)
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
	// Record, if set, keeps the calls for the reports of package collective/flight. It costs less than
	// 100 ns a call.
	Record *flight.Recorder
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

// group is an ordered set of processes, seen from one of them (an MPI_Group). Each process has a
// rank in the group and a rank in the transport. The two ranks differ in a communicator from Split.
// A group is immutable.
type group struct {
	rank    int // of the caller
	size    int
	members []int // rank of the transport, by rank here; nil if both are the same
}

// newGroup returns the group of some ranks of the transport, in the given order. self is the
// caller's rank of the transport.
func newGroup(ranks []int, self int) group {
	return group{rank: slices.Index(ranks, self), size: len(ranks), members: ranks}
}

// transportRank converts a rank of the group to a rank of the transport.
func (g *group) transportRank(rank int) int {
	if g.members == nil {
		return rank
	}
	return g.members[rank]
}

// commRank converts a rank of the transport to a rank of the group. It is the inverse of
// transportRank, and returns -1 if the rank is not in the group.
func (g *group) commRank(at int) int {
	if g.members == nil {
		return at
	}
	return slices.Index(g.members, at)
}

// transportRanks returns all ranks of the group as ranks of the transport.
func (g *group) transportRanks() []int {
	all := make([]int, g.size)
	for rank := range all {
		all[rank] = g.transportRank(rank)
	}
	return all
}

// total checks counts, one per rank, and returns their sum.
func (g *group) total(counts []int) (int, error) {
	if len(counts) != g.size {
		return 0, fmt.Errorf("%w: %d counts for %d ranks, want one for each rank", ErrArgument, len(counts), g.size)
	}
	sum := 0
	for rank, n := range counts {
		if n < 0 {
			return 0, fmt.Errorf("%w: the count of rank %d is %d, want 0 or more", ErrArgument, rank, n)
		}
		// Counts come from the program, and their sum must not wrap around.
		if n > math.MaxInt-sum {
			return 0, fmt.Errorf("%w: the sum of the counts exceeds the length of a vector", ErrArgument)
		}
		sum += n
	}
	return sum, nil
}

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
	o.Record.Origin(ep.started)
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

// SharesMemory reports whether Alloc returns memory that the ranks of the host share.
func (c *Comm) SharesMemory() bool { return c.isValid() && c.shared != nil && c.shared.Arena != nil }

// SameMemory reports whether vectors from Alloc on c and on d lie in the same shared
// memory, so that calls on either communicator may use them without copies. d may be
// closed.
func (c *Comm) SameMemory(d *Comm) bool {
	return c.SharesMemory() && d.SharesMemory() && c.shared.Arena == d.shared.Arena
}

// Board returns the words that the ranks of this host share; nil if they share none.
func (c *Comm) Board() *Board {
	if !c.isValid() {
		return nil
	}
	sharer, ok := c.t.(transport.Sharer)
	if !ok {
		return nil
	}
	s := sharer.Shared()
	if s == nil || s.Words == nil {
		return nil
	}
	b := &Board{ep: c.endpoint, words: s.Words, self: c.rank}
	for rank := range c.size {
		b.local = append(b.local, slices.Index(s.Ranks, c.transportRank(rank)))
	}
	return b
}

// Notes returns the notes of the ranks of the communicator.
func (c *Comm) Notes() Notes { return Notes{c} }

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

// Meter returns the transport's meter of link throughput, or nil if the transport has none. From
// the meter's measurements the trainer computes the order of the ring (CallOptions.Order).
func (c *Comm) Meter() transport.Meter {
	if !c.isValid() {
		return nil
	}
	m, _ := c.t.(transport.Meter)
	return m
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

// Choice returns the algorithm with which c carries out a call of the given kind on a vector of the
// given total number of bytes: the algorithm in CallOptions, or the choice of Auto. Pass
// commutative as true for calls without a reduction. Choice returns an ErrArgument if c is nil, or
// if the algorithm or the order in CallOptions does not fit the call.
func (c *Comm) Choice(kind transport.Kind, bytes int, commutative bool) (Algorithm, error) {
	if !c.isValid() {
		return Auto, fmt.Errorf("collective: choice: %w", errNil)
	}
	return c.choose(kind, float64(bytes), commutative)
}

// choose is Choice for a communicator that is known to be valid.
func (c *Comm) choose(kind transport.Kind, bytes float64, commutative bool) (Algorithm, error) {
	if c.order.err != nil {
		return Auto, c.order.err
	}
	r := request{kind, c.size, bytes, float64(c.opts.Segment), commutative, c.lane != nil, c.level != nil}
	return choose(c.algorithm, &r, c.opts.Cost)
}

// Cost returns the costs from which Auto computes its choice.
func (c *Comm) Cost() Cost { return c.orInvalid().opts.Cost }

// CallOptions are options of calls, for Comm.With. A zero field leaves the option of the
// communicator unchanged.
type CallOptions struct {
	// Algorithm is the algorithm of the calls, the same at all ranks. A call that the algorithm
	// cannot carry out fails with ErrArgument. With Auto, the default, the algorithm is chosen for
	// each call.
	Algorithm Algorithm
	// For is the purpose of the calls in reports of stalls, as in "bucket 2 of 7". It may
	// differ between ranks.
	For string
	// Priority orders messages that wait for the same link: messages of calls with higher
	// priority go first. The default is 0; it may be negative, and may differ between
	// ranks.
	Priority int32
	// Interruptible shortens segments, so that a more urgent message waits about a
	// millisecond at most for a segment of these calls, according to Options.Cost. All
	// ranks set the same value.
	Interruptible bool
	// Order is the order of the ring: a permutation of the ranks, the same at all ranks. Ring
	// algorithms then send from each rank to the next one in the order, and from the last to the
	// first. Other algorithms ignore it. Ranks whose orders differ find a mismatch; if Order is not
	// a permutation, every call fails with ErrArgument. ring.Order computes a good order. The
	// result of a call is the same for every order, except for the last bits of floating-point
	// sums. The slice is copied.
	Order []int
}

// callOptions are the CallOptions in effect, with defaults filled in.
type callOptions struct {
	algorithm Algorithm
	purpose   string
	priority  int32
	segment   int       // maximum size of a message, in bytes
	order     ringOrder // the order in which ring algorithms visit the ranks
}

// With returns the same communicator with other options. Calls on the result and on c share
// one sequence; c does not change. With allocates, so programs that make many calls keep
// the result. Communicators made from the result by Split and Dup inherit its Algorithm and
// no other option.
func (c *Comm) With(o CallOptions) *Comm {
	d := *c.orInvalid()
	if o.Algorithm != Auto {
		d.algorithm = o.Algorithm
	}
	if o.For != "" {
		d.purpose = o.For
	}
	if o.Priority != 0 {
		d.priority = o.Priority
	}
	if o.Interruptible {
		d.segment = shortSegment(d.opts.Segment, d.opts.Cost.Beta)
	}
	if o.Order != nil {
		d.order = newRingOrder(o.Order, d.size)
	}
	return &d
}

// withAlgorithm is With for the algorithm alone, which may be Auto.
func (c *Comm) withAlgorithm(a Algorithm) *Comm {
	d := *c.orInvalid()
	d.algorithm = a
	return &d
}

// within returns the options for calls on part, a subset of the group whole. The algorithm of these
// calls is chosen again, for the smaller number of ranks. The ranks of the part keep their relative
// order in the ring.
func (c *callOptions) within(whole, part *group) callOptions {
	d := callOptions{purpose: c.purpose, priority: c.priority, segment: c.segment}
	if c.order.ranks == nil {
		return d
	}
	var order []int
	for _, rank := range c.order.ranks {
		if i := part.commRank(whole.transportRank(rank)); i >= 0 {
			order = append(order, i)
		}
	}
	d.order = newRingOrder(order, part.size)
	return d
}

// segmentTime is the target duration of a message of an interruptible call, in seconds.
// minSegment is the lower bound of the length of such a message, in bytes.
const (
	segmentTime = 1e-3
	minSegment  = 16 << 10
)

// shortSegment returns the size of a segment, in bytes, that takes about segmentTime at beta
// seconds per byte, and at most segment. It is a multiple of 8.
func shortSegment(segment int, beta float64) int {
	for segment >= 2*minSegment && float64(segment)*beta > segmentTime {
		segment = segment / 16 * 8
	}
	return segment
}

// derive returns a communicator of some ranks of the transport, with default options. It does not
// communicate: each of these ranks derives the same communicator from values that all of them know.
// Its calls are refused after the communicator of the sequence parent is closed; parent may be nil.
func (c *Comm) derive(id uint64, parent *sequence, ranks []int) *Comm {
	if parent != nil {
		c.opts.Record.Group(id, slices.Clone(ranks))
	}
	return &Comm{endpoint: c.endpoint, group: newGroup(ranks, c.self), callOptions: callOptions{segment: c.opts.Segment},
		seq: c.sequence(id, parent), id: id}
}

// initTopology initialises the topology of a new communicator: a lane if all its ranks share
// memory, otherwise a level for its hosts and sites, with a lane for the ranks of this
// host.
func (c *Comm) initTopology(lane int) {
	ranks := c.transportRanks()
	c.lane = c.shared.assignLane(lane, ranks)
	if c.lane != nil || c.topology.leaders == nil {
		return
	}
	hosts := c.topology.byHost(ranks)
	if len(hosts) == c.size { // one rank per host
		c.level = c.newLevel(c.topology.bySite(ranks), siteColor, headColor)
		return
	}
	c.level = c.newLevel(hosts, localColor, leaderColor)
	c.level.local.lane = c.shared.assignLane(lane, c.level.local.transportRanks())
	if leaders := c.level.leaders; leaders != nil {
		leaders.level = leaders.newLevel(c.topology.bySite(leaders.transportRanks()), siteColor, headColor)
	}
}

// newLevel returns a level for groups of the ranks of c, given as ranks of the transport; nil for
// no groups. local and leader are the colors of its two communicators.
func (c *Comm) newLevel(groups [][]int, local, leader int) *level {
	if groups == nil {
		return nil
	}
	l := &level{groups: len(groups), lock: new(ticketLock)}
	first := make([]int, 0, len(groups))
	for _, g := range groups {
		first = append(first, g[0])
		if !slices.Contains(g, c.self) {
			continue
		}
		// The lowest rank of a group is part of the ID, so the groups of a level have different
		// IDs.
		l.local = c.derive(childID(c.id, uint32(g[0]), local), nil, g)
		l.local.seq.part = true
		for _, at := range g {
			l.localRanks = append(l.localRanks, c.commRank(at))
		}
	}
	if slices.Contains(first, c.self) {
		l.leaders = c.derive(childID(c.id, uint32(first[0]), leader), nil, first)
		l.leaders.seq.part = true
	}
	return l
}

// CodedBytes returns the number of bytes that a rank sends in AllReduceCoded of n elements,
// and the number that it would send in AllReduce around a ring. Both are averages over the
// ranks, without message headers. Both are 0 for a nil communicator or coding.
func (c *Comm) CodedBytes(n int, coding Coding) (sent, uncoded int64) {
	if !c.isValid() || coding == nil {
		return 0, 0
	}
	ranks, others := int64(c.size), int64(c.size-1)
	uncoded = 2 * others * int64(n) * 4 / ranks
	// With a sparse coding the codes of whole vectors are gathered, and each rank adds them up.
	if coding.Sparse() {
		return others * int64(coding.Size(n)), uncoded
	}
	all := int64(0)
	for rank := range c.size {
		first, end := Chunk(n, c.size, rank)
		all += int64(coding.Size(end - first))
	}
	return 2 * others * all / ranks, uncoded
}

// run carries out a blocking call.
func (c *Comm) run(ctx context.Context, p plan) error {
	return c.execute(ctx, &p, p.body)
}

// start begins a call and returns its handle. A goroutine carries the call out, and Close
// waits for it.
func (c *Comm) start(ctx context.Context, p plan) *Handle {
	h := &Handle{comm: c.orInvalid(), message: p.message}
	var err error
	if c.isValid() && p.call.Algorithm == SharedMemory {
		err = c.enqueue(ctx, &p, h)
	} else {
		err = h.background(ctx, &p)
	}
	if err != nil {
		h.end(err)
	}
	return h
}

// execute is run with the body as a parameter. A body in the plan would be allocated on the heap,
// which costs more time than a short call.
func (c *Comm) execute(ctx context.Context, p *plan, body func(*operation) error) error {
	o, err := c.begin(p, true)
	if err == nil {
		err = o.execute(ctx, p.err, body)
	}
	if err != nil {
		c.reportError(err)
	}
	return err
}

// reportError reports the error of a call to Options.OnError, before the caller gets the error.
func (c *Comm) reportError(err error) {
	if c.isValid() && c.id == 0 && c.opts.OnError != nil {
		c.opts.OnError(err)
	}
}

// begin gives the call its place in the sequence, and begins to track the call unless it may stay
// untracked.
func (c *Comm) begin(p *plan, blocking bool) (*operation, error) {
	if err := c.enter(p); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	o := c.register(blocking && p.call.Algorithm == SharedMemory && c.untracked == nil)
	o.describe(c, &p.call)
	o.peer, o.sends, o.needsBarrier, o.blocking = -1, p.send, p.needsBarrier, blocking
	if blocking && !c.seq.part {
		c.blocked++
	}
	// A Send or Recv has no place in the sequence, so its Seq holds the tag.
	o.env.Seq = uint32(max(p.tag, 0)) | pointBit
	if p.call.Kind != transport.KindPoint {
		o.env.Seq = c.seq.next()
		if blocking {
			c.seq.running = o
		}
	} else if p.err == nil {
		c.seq.beginPoint(o, p)
	}
	switch p.call.Algorithm {
	case SharedMemory:
		o.lock, o.ticket = c.lane.lock, c.lane.lock.nextTicket()
	case TwoLevel:
		o.lock, o.ticket = c.level.lock, c.level.lock.nextTicket()
	}
	o.record()
	return o, nil
}

// enter reports a call to Options.OnBegin and locks endpoint.mu, under which the caller gives the
// call its place in the sequence. If the call cannot begin, enter returns the error and does not
// lock. For ErrConcurrent enter revokes, because another rank may have begun the two concurrent
// calls in the opposite order, and would combine wrong vectors.
func (c *Comm) enter(p *plan) error {
	if !c.isValid() {
		return fmt.Errorf("%v: %w", p.call, errNil)
	}
	if c.opts.OnBegin != nil {
		c.opts.OnBegin()
	}
	c.mu.Lock()
	err := c.admit(p)
	if err == nil {
		c.goroutines = c.goroutines || c.blocked > 0 && !c.seq.part
		return nil
	}
	c.mu.Unlock()
	if errors.Is(err, ErrConcurrent) {
		c.revoke(err)
	}
	return err
}

// admit returns an error if a call cannot begin now: its communicator is closed or in a
// blocking call. The caller holds endpoint.mu.
func (c *Comm) admit(p *plan) error {
	if c.closed || c.seq.isClosed() {
		return fmt.Errorf("%v: %w: %w", p.call, ErrClosed, ErrRevoked)
	}
	if now := c.seq.running; now != nil && p.call.Kind != transport.KindPoint {
		return &callError{fmt.Errorf("%w: %v during %v: use one communicator per goroutine (Dup), or start both calls from one goroutine by functions such as IAllReduce",
			ErrConcurrent, p.call, now.env.Call)}
	}
	return nil
}

// enqueue gives a call its place in the sequence and adds it to the queue.
func (c *Comm) enqueue(ctx context.Context, p *plan, h *Handle) error {
	if ctx == nil {
		p.err = errNoContext
	}
	if err := c.enter(p); err != nil {
		return err
	}
	fresh := c.seq.queue.add(ctx, p, h)
	c.mu.Unlock()
	if fresh != nil {
		fresh.watch(c.endpoint)
	}
	return nil
}
