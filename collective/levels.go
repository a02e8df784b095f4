package collective

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/internal/shm"
)

const (
	// levelSegments is the number of segments in a piece of the vector. A piece is the unit
	// of the pipeline between levels: it crosses between groups while the ranks of each
	// group reduce the next piece.
	levelSegments = 4
	// levelWindow is the in-flight window: the number of pieces of a call that cross
	// between groups at the same time. Over a long distance a single piece would leave most
	// of the bandwidth-delay product unused.
	levelWindow = 16
	// levelInline is the length in bytes up to which a piece is sent to the ranks of a host
	// by messages, even if they could read it in shared memory. Reading needs messages as
	// well, for the position and for the acknowledgement.
	levelInline = 8 << 10
)

// allReduceLevels is the hierarchical (two-level) AllReduce. Each group reduces its vectors
// at its leader; the leaders reduce these sums among each other; each leader distributes
// the result in its group.
//
// A group is a host, which works in shared memory. The leaders of hosts, or the ranks of
// hosts with one rank each, may form groups in turn, the sites, which work by messages. So
// each byte crosses from one host to the next once, and from one site to the next once,
// however many ranks there are. Only the reductions within a group take turns: between
// groups and during the distribution urgent calls overtake others.
//
// Costs for k sites of at most m hosts each and S bytes, besides the work in shared memory:
// within a site, twice 2 lg m steps and S lg m bytes sent by a leader; between sites, the
// costs of AllReduce for k ranks, which are 2(k-1) steps and 2(k-1)/k S bytes for a ring,
// so S bytes in each direction between two sites. A ring of all n hosts would send 2(n-1)/n
// S bytes over each link between sites. The pieces of a vector occupy all levels at the
// same time, so a long vector takes as long as the slowest level.
func allReduceLevels[T Number](o *operation, dst, src []T, red Reduction[T]) error {
	whole := red // its final function applies to the result of all ranks
	red.Finish = nil
	l := levels[T]{operation: o, dst: dst, src: src, op: func() Reduction[T] { return red },
		step: max(1, levelSegments*o.opts.Segment/kernel.Size[T]()), crossing: make(chan *Handle, levelWindow)}
	if err := l.run(); err != nil {
		return err
	}
	finish(whole, dst, o.size)
	return nil
}

// levels is a hierarchical AllReduce in progress at this rank. Two goroutines carry it out
// for long vectors: gather and spread. Every failure revokes, so its parts need no context.
type levels[T Number] struct {
	*operation
	dst, src []T
	op       Op[T]        // the reduction without its final function
	step     int          // elements of a piece
	crossing chan *Handle // calls in progress between the groups, in order of pieces; empty at ranks that are no leader
	lent     bool         // the other ranks of the host read from the leader's dst
}

// run gathers all pieces and spreads them after they have crossed. With several pieces the
// two overlap.
func (l *levels[T]) run() (err error) {
	if len(l.src) <= l.step {
		if err := l.gather(); err != nil {
			return err
		}
		return l.spread()
	}
	spread := make(chan error, 1)
	go func() { spread <- l.spread() }()
	defer func() {
		if serr := <-spread; err == nil {
			err = serr
		}
	}()
	return l.gather()
}

// each calls do for each piece of the vector; an empty vector is one piece.
func (l *levels[T]) each(do func(first, end int) error) error {
	for first := 0; first == 0 || first < len(l.src); first += l.step {
		if err := do(first, min(first+l.step, len(l.src))); err != nil {
			return err
		}
	}
	return nil
}

// gather reduces the vectors of this group at its leader, which starts the reduction
// between groups. The turn passes to the next call when all pieces have been started, so
// that all leaders start them in the same order.
func (l *levels[T]) gather() (err error) {
	err = errPanicked // the user's reduction may panic
	defer func() {
		if err != nil {
			l.revoke(err) // otherwise spread would wait for ever
		}
		l.pass(err == nil)
		close(l.crossing)
	}()
	if err := l.turns.enter(l.operation); err != nil {
		return err
	}
	return l.each(l.gatherPiece)
}

// gatherPiece reduces one piece within the group; the leader starts its reduction between
// groups.
func (l *levels[T]) gatherPiece(first, end int) error {
	ctx, piece := context.Background(), l.dst[first:end]
	if err := Reduce(ctx, l.level.local, piece, l.src[first:end], l.op, 0); err != nil {
		return err
	}
	if c := l.level.leaders; c != nil {
		l.crossing <- IAllReduce(ctx, c.like(l.Comm), piece, piece, l.op)
	}
	return nil
}

// like returns c with the call options of d. The ranks of c are a subset of d's, and keep their
// relative order in d's ring.
func (c *Comm) like(d *Comm) *Comm {
	e := *c
	e.purpose, e.priority, e.segment = d.purpose, d.priority, d.segment
	if d.order.ranks == nil {
		return &e
	}
	var order []int
	for _, rank := range d.order.ranks {
		if i := c.rankOf(d.inWorld(rank)); i >= 0 {
			order = append(order, i)
		}
	}
	e.order = newRingOrder(order, e.size)
	return &e
}

// spread brings each piece to all ranks of the group after it has crossed. When it returns,
// no call in progress uses dst.
func (l *levels[T]) spread() error {
	do := l.take
	if l.level.leaders != nil {
		do = l.give
	}
	err := l.each(do)
	if err == nil && l.lent {
		err = l.handBack()
	}
	if err != nil {
		l.revoke(err)
	}
	for h := range l.crossing {
		_ = h.Wait(context.Background()) // ends soon, as the communicator is revoked
	}
	if err != nil && l.lent && l.level.leaders != nil { // the other ranks must not read later contents of dst
		return errors.Join(err, l.shared.Arena.Abandon(kernel.Bytes(l.dst)))
	}
	return err
}

// give waits until a piece has crossed and sends it to the other ranks of the group.
func (l *levels[T]) give(first, end int) error {
	h, more := <-l.crossing
	if !more {
		return l.whyRevoked()
	}
	if err := h.Wait(context.Background()); err != nil {
		return err
	}
	l.moved()
	out := kernel.Bytes(l.dst[first:end])
	return l.hand(out, l.lend(out))
}

// hand sends a piece to the ranks that get it from this rank. If ref is not 0 the ranks
// read the whole pages of the piece in shared memory, and hand sends only the position and
// the rest.
func (l *levels[T]) hand(out []byte, ref shm.Ref) error {
	for _, to := range l.below() {
		if l.inMemory(out) {
			if err := l.send(to, binary.LittleEndian.AppendUint64(nil, uint64(ref))); err != nil {
				return err
			}
		}
		err := besides(ref, out, func(part []byte) error { return l.send(to, part) })
		if err != nil {
			return err
		}
	}
	return nil
}

// inMemory reports whether a piece may be read in the memory of the leader, so that a
// message with its position is due.
func (l *levels[T]) inMemory(v []byte) bool { return l.level.local.lane != nil && len(v) > levelInline }

// above returns the rank that sends the result to this rank. With shared memory the leader
// sends to all; by messages the result goes along a binomial tree.
func (l *levels[T]) above() int {
	near, place := l.level.near, l.level.local.rank
	if l.level.local.lane != nil {
		return near[0]
	}
	return near[place&(place-1)]
}

// below returns the ranks to which this rank sends the result: with shared memory all
// others from the leader, by messages the children in the binomial tree, the farthest
// first.
func (l *levels[T]) below() []int {
	near, place := l.level.near, l.level.local.rank
	if l.level.local.lane != nil {
		if place > 0 {
			return nil
		}
		return near[1:]
	}
	var to []int
	for d := 1; place+d < len(near) && place&d == 0; d *= 2 {
		to = append(to, near[place+d])
	}
	slices.Reverse(to)
	return to
}

// take receives a piece from the rank above, the receiving half of hand, and sends it on to
// the ranks below.
func (l *levels[T]) take(first, end int) error {
	in, from := kernel.Bytes(l.dst[first:end]), l.above()
	var ref shm.Ref
	if l.inMemory(in) {
		var where [8]byte
		if err := l.recv(from, where[:]); err != nil {
			return err
		}
		ref = shm.Ref(binary.LittleEndian.Uint64(where[:]))
	}
	if ref != 0 {
		if err := l.read(in, ref); err != nil {
			return err
		}
	}
	if err := besides(ref, in, func(part []byte) error { return l.recv(from, part) }); err != nil {
		return err
	}
	return l.hand(in, 0)
}

// lend returns the position at which the other ranks of the host can read v; 0 if they
// cannot, or if there are none. A rank alone on its host has neither a lane nor, usually,
// shared memory.
func (l *levels[T]) lend(v []byte) shm.Ref {
	if !l.inMemory(v) || l.shared.Arena == nil {
		return 0
	}
	ref := l.shared.Arena.Ref(v)
	l.lent = l.lent || ref != 0
	return ref
}

// read copies the whole pages of a piece from the leader's memory. The leader takes exactly
// these pages out of the shared memory if the call fails, so no later content is ever read
// there.
func (l *levels[T]) read(in []byte, ref shm.Ref) error {
	lane := l.level.local.lane
	lent, ok := lane.ArenaBytes(0, ref, len(in))
	if !ok {
		return fmt.Errorf("rank %d of the transport lends %d bytes at %#x, where it has none", lane.ranks[0], len(in), uint64(ref))
	}
	head, tail := ref.PageEdges(len(in))
	copy(in[head:len(in)-tail], lent[head:])
	l.lent = true
	return nil
}

// besides calls do for the parts of a vector that are not readable at ref: the whole vector
// if ref is 0, otherwise its incomplete pages at both ends.
func besides(ref shm.Ref, v []byte, do func(part []byte) error) error {
	if ref == 0 {
		return do(v)
	}
	head, tail := ref.PageEdges(len(v))
	for _, part := range [][]byte{v[:head], v[len(v)-tail:]} {
		if len(part) == 0 {
			continue
		}
		if err := do(part); err != nil {
			return err
		}
	}
	return nil
}

// handBack acknowledges to the leader that this rank has read everything; the leader waits
// for all acknowledgements before it uses its dst again.
func (l *levels[T]) handBack() error {
	if l.level.leaders == nil {
		return l.send(l.level.near[0], nil)
	}
	for _, from := range l.level.near[1:] {
		if err := l.recv(from, nil); err != nil {
			return err
		}
	}
	return nil
}
