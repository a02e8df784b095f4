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
	// levelSegments is how many segments a piece of a vector has that crosses between groups
	// while the ranks of each combine the next.
	levelSegments = 4
	// levelWindow is how many pieces of a call cross at a time: on a long way one alone would
	// leave most of the link unused.
	levelWindow = 16
	// levelInline is up to how many bytes a piece is sent to the ranks of a host where they
	// could read it in memory, which they are told of and tell of by messages, too.
	levelInline = 8 << 10
)

// allReduceLevels combines the vectors of each group, then those sums between one rank of each
// group, its leader, which hands the result out. A group is a host, in whose memory that is done;
// its leaders, or the ranks of hosts with one each, may fall into groups in turn, those of the
// sites, which do it by messages. So each byte goes from one host to the next once, and from one
// site to the next once, however many ranks there are. Calls take turns to combine only: between
// the groups and on the way out urgent ones overtake others.
//
// Costs for k sites of at most m hosts each and S bytes, besides what a host does in its memory:
// 2 lg m steps and S lg m bytes, sent by a leader, within a site, twice; between the sites those
// of AllReduce for k ranks, which are 2(k-1) steps and 2(k-1)/k S bytes by a ring: S bytes each
// way between two sites. A ring of all n hosts would send 2(n-1)/n S bytes over each link between
// sites. Pieces of the vector are at all levels at the same time, so a long one takes as long as
// the slowest level.
func allReduceLevels[T Number](o *operation, dst, src []T, red Reduction[T]) error {
	whole := red // its last step is of all ranks
	red.Finish = nil
	l := levels[T]{operation: o, dst: dst, src: src, op: func() Reduction[T] { return red },
		step: max(1, levelSegments*o.opts.Segment/kernel.Size[T]()), crossing: make(chan *Handle, levelWindow)}
	if err := l.run(); err != nil {
		return err
	}
	finish(whole, dst, o.size)
	return nil
}

// levels is such a call under way. What ends it revokes, so that its parts need no context.
type levels[T Number] struct {
	*operation
	dst, src []T
	op       Op[T]
	step     int          // elements of a piece
	crossing chan *Handle // pieces between the groups, in order; none where this rank is no leader
	lent     bool         // the other ranks of the host read in the leader's dst
}

// run gathers, and spreads what has crossed. Of several pieces the first are spread while
// others are gathered.
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

// each does something with each piece of the vector; an empty one is one piece.
func (l *levels[T]) each(do func(first, end int) error) error {
	for first := 0; first == 0 || first < len(l.src); first += l.step {
		if err := do(first, min(first+l.step, len(l.src))); err != nil {
			return err
		}
	}
	return nil
}

// gather combines the vectors of this group at its leader, which lets them cross. The next
// call has its turn when all pieces are on their way, so that all leaders begin in one order.
func (l *levels[T]) gather() (err error) {
	err = errPanicked // of the user's reduction
	defer func() {
		if err != nil {
			l.revoke(err) // or spread would wait
		}
		l.pass(err == nil)
		close(l.crossing)
	}()
	if err := l.turns.enter(l.operation); err != nil {
		return err
	}
	return l.each(l.gatherPiece)
}

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

// like returns c for the parts of a call of d, some of whose ranks it has: they go round a ring
// as they do there.
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

// spread brings each piece to all ranks of the group when it has crossed. It leaves nothing
// behind that uses dst.
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
		_ = h.Wait(context.Background()) // it was revoked
	}
	if err != nil && l.lent && l.level.leaders != nil { // they must not read what comes there next
		return errors.Join(err, l.shared.Arena.Abandon(kernel.Bytes(l.dst)))
	}
	return err
}

// give waits until a piece has crossed and hands it to the other ranks of the group.
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

// hand sends a piece on to those who get it from this rank, or what of it they cannot read at ref.
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

// inMemory reports whether a piece may be read in the memory of the leader, who says where.
func (l *levels[T]) inMemory(v []byte) bool { return l.level.local.lane != nil && len(v) > levelInline }

// above returns the rank that hands the result to this one, and below the ranks to which this one
// hands it: in memory the leader hands it to all, by messages it goes along a binomial tree, to
// the farthest rank first.
func (l *levels[T]) above() int {
	near, place := l.level.near, l.level.local.rank
	if l.level.local.lane != nil {
		return near[0]
	}
	return near[place&(place-1)]
}

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

// take is the other side of hand, and hands on.
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

// lend returns where the other ranks of the host can read v; 0 if they cannot, or if there are
// none: a rank alone on its host has neither a lane nor, as a rule, shared memory.
func (l *levels[T]) lend(v []byte) shm.Ref {
	if !l.inMemory(v) || l.shared.Arena == nil {
		return 0
	}
	ref := l.shared.Arena.Ref(v)
	l.lent = l.lent || ref != 0
	return ref
}

// read copies the whole pages of what the leader lends. These the leader takes out of reach if
// the call fails, so that nothing else is ever read there.
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

// besides does something with the parts of a vector that are not lent: all of it where it
// lies nowhere, and what it has of a page at either end.
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

// handBack lets the leader go on to use its dst when all have read there.
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
