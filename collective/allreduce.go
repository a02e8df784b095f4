package collective

import (
	"context"
	"errors"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/internal/shm"
	"github.com/elrun/elrun/ring"
)

// AllReduce reduces the vectors src of all ranks, element by element, into dst at every
// rank. The result has the same bits at all ranks. dst and src have the same length, at all
// ranks; dst may be src.
//
// Costs for n ranks and S bytes: ring, 2(n-1) steps and 2(n-1)/n S bytes sent; recursive doubling,
// lg n steps and S lg n bytes; Rabenseifner, 2 lg n steps and 2(n-1)/n S bytes; tree, 2 lg n steps.
// If n is not a power of two, recursive doubling and Rabenseifner send S bytes two more times.
func AllReduce[T Number](ctx context.Context, c *Comm, dst, src []T, op Op[T]) error {
	red := orEmptyOp(op)()
	var p plan
	planAllReduce(&p, c, dst, src, &red)
	return c.execute(ctx, &p, func(o *operation) error { return allReduce(o, dst, src, red) })
}

// IAllReduce starts AllReduce.
func IAllReduce[T Number](ctx context.Context, c *Comm, dst, src []T, op Op[T]) *Handle {
	red := orEmptyOp(op)()
	var p plan
	planAllReduce(&p, c, dst, src, &red)
	kept := red // a closure over red itself would allocate, as planAllReduce takes the address of red
	p.body = func(o *operation) error { return allReduce(o, dst, src, kept) }
	return c.start(ctx, p)
}

// planAllReduce fills in the plan except its body.
func planAllReduce[T Number](p *plan, c *Comm, dst, src []T, red *Reduction[T]) {
	p.describe(c.orInvalid(), &vector{kind: transport.KindAllReduce, typ: dtype.TypeOf[T](), size: kernel.Size[T](), count: len(src),
		root: noRoot, op: red.Name, width: red.Width, ordered: !red.Commutative})
	p.check("dst", len(dst), len(src))
	checkReduction(p, red.Fold)
	checkVectors(p, c, dst, src, dst)
	p.needsBarrier = p.call.Algorithm == Ring && len(src) == 0 // a ring sends no message for an empty vector
}

// allReduce is the body of AllReduce.
func allReduce[T Number](o *operation, dst, src []T, red Reduction[T]) error {
	switch a := o.env.Call.Algorithm; {
	case a == SharedMemory:
		return allReduceShared(o, dst, src, red)
	case a == TwoLevel:
		return allReduceHierarchical(o, dst, src, red)
	case a == Ring && o.size > 1:
		return ring.AllReduce(context.Background(), o.ring(), dst, src, red)
	}
	if err := allReducePaired(o, dst, src, red); err != nil {
		return err
	}
	finish(red, dst, o.size)
	return nil
}

// allReducePaired reduces vectors over all ranks by recursive doubling, Rabenseifner's algorithm or
// a tree. In every reduction step the vector of the lower ranks is the first operand. So reductions
// that do not commute are correct, and all ranks get the same bits.
func allReducePaired[T Number](o *operation, dst, src []T, red Reduction[T]) error {
	a := o.env.Call.Algorithm
	if a == RecursiveDoubling && o.size > 1 && isPowerOfTwo(o.size) {
		return recursiveDoubling(o, subgroup{rank: o.rank, size: o.size}, dst, src, red)
	}
	copy(dst, src)
	switch {
	case o.size == 1:
		return nil
	case a == RecursiveDoubling:
		return withPowerOfTwo(o, dst, red, func(g subgroup) error { return recursiveDoubling(o, g, dst, dst, red) })
	case a == Rabenseifner:
		return withPowerOfTwo(o, dst, red, func(g subgroup) error { return rabenseifner(o, g, dst, red) })
	}
	if err := reduceTree(o, dst, red, 0); err != nil {
		return err
	}
	return broadcastTree(o, kernel.Bytes(dst), 0)
}

// subgroup is a set of ranks for algorithms that need a power of two of ranks. Its size is the
// largest power of two up to the number of ranks. Each member contributes its own vector, and the
// first members also contribute the vectors of their left neighbours.
type subgroup struct {
	rank, size int // rank of this member in the subgroup; number of members
	paired     int // the ranks below paired form pairs; the odd rank of each pair is the member
}

// commRank returns the rank of member i in the communicator.
func (s subgroup) commRank(i int) int {
	if i < s.paired/2 {
		return 2*i + 1
	}
	return i + s.paired/2
}

// withPowerOfTwo runs a recursive algorithm, which needs a power of two of ranks, on a subgroup.
// First, each rank that is not a member sends its vector to its right neighbour, which reduces the
// two adjacent vectors in the order of ranks. Then the members call reduce. At last they send the
// results back.
func withPowerOfTwo[T Number](o *operation, v []T, red Reduction[T], reduce func(subgroup) error) error {
	g := subgroup{size: 1}
	// g.size is the largest power of two that is at most o.size. In each of the first g.paired/2
	// pairs of ranks one rank is a member.
	for 2*g.size <= o.size {
		g.size *= 2
	}
	g.paired = 2 * (o.size - g.size)
	if o.rank >= g.paired {
		g.rank = o.rank - g.paired/2
		return reduce(g)
	}
	if o.rank%2 == 0 {
		if err := o.send(o.rank+1, kernel.Bytes(v)); err != nil {
			return err
		}
		return o.recv(o.rank+1, kernel.Bytes(v))
	}
	// An odd rank of a pair is the member. Its left neighbour has the lower rank, so its vector is
	// the first operand.
	lower := scratch[T](o, len(v))
	if err := o.recv(o.rank-1, kernel.Bytes(lower)); err != nil {
		return err
	}
	red.Fold(v, lower, v)
	g.rank = o.rank / 2
	if err := reduce(g); err != nil {
		return err
	}
	return o.send(o.rank-1, kernel.Bytes(v))
}

// recursiveDoubling is recursive doubling: members exchange whole vectors at distance 1, 2, 4, ...
// After each step a block of twice as many members has the same result. The vector is exchanged in
// pieces, so that the reduction of a piece overlaps with the transfer of the next one. The vector
// of this member is src, which may be dst.
func recursiveDoubling[T Number](o *operation, g subgroup, dst, src []T, red Reduction[T]) error {
	size := kernel.Size[T]()
	// One segment of scratch memory is enough, as a segment is reduced before the next one is
	// received into it.
	other := scratch[T](o, min(max(1, o.segment()/size), len(src)))
	for d := 1; d < g.size; d *= 2 {
		partner := g.commRank(g.rank ^ d)
		err := o.swap(partner, kernel.Bytes(src), kernel.Bytes(other), func(first, end int) {
			first, end = first/size, end/size
			reduceOrdered(red, dst[first:end], src[first:end], other[:end-first], partner < o.rank)
		})
		if err != nil {
			return err
		}
		// From the second step on, this member sends the result of the previous step.
		src = dst
	}
	return nil
}

// rabenseifner is Rabenseifner's algorithm (Rabenseifner 2004): a reduce-scatter and an allgather.
// In the reduce-scatter, members at distance 1, 2, 4, ... exchange halves of their windows: each
// member reduces and keeps one half as its next window. In the allgather, they exchange the reduced
// halves, from the largest distance to the smallest. Distances double in the reduce-scatter, rather
// than halve, so that each sum is over a contiguous block of members.
func rabenseifner[T Number](o *operation, g subgroup, v []T, red Reduction[T]) error {
	// The first exchange receives at most half of the vector, and later exchanges receive less.
	half, _ := halve(v, false, red.Width)
	other := scratch[T](o, len(half))
	var windows [][]T
	w := v
	for d := 1; d < g.size; d *= 2 {
		partner := g.commRank(g.rank ^ d)
		keep, give := halve(w, g.rank&d != 0, red.Width)
		in := other[:len(keep)]
		if err := o.exchange(partner, kernel.Bytes(give), partner, kernel.Bytes(in)); err != nil {
			return err
		}
		reduceOrdered(red, keep, keep, in, partner < o.rank)
		windows = append(windows, w)
		w = keep
	}
	for d := g.size / 2; d >= 1; d /= 2 {
		partner := g.commRank(g.rank ^ d)
		last := len(windows) - 1
		keep, give := halve(windows[last], g.rank&d != 0, red.Width)
		if err := o.exchange(partner, kernel.Bytes(keep), partner, kernel.Bytes(give)); err != nil {
			return err
		}
		windows = windows[:last]
	}
	return nil
}

// halve returns the half of w that this member keeps and the half that it sends away. Both have whole
// groups of width elements.
func halve[T any](w []T, upper bool, width int) (keep, give []T) {
	mid := (len(w) + 1) / 2
	if width > 1 {
		mid = (len(w)/width + 1) / 2 * width
	}
	if upper {
		return w[mid:], w[:mid]
	}
	return w[:mid], w[mid:]
}

// reduceOrdered reduces v and other into dst, which may be v, with the vector of the lower
// ranks as the first operand.
func reduceOrdered[T Number](red Reduction[T], dst, v, other []T, otherIsLower bool) {
	if otherIsLower {
		red.Fold(dst, other, v)
		return
	}
	red.Fold(dst, v, other)
}

// allReduceShared is AllReduce in shared memory. A short vector is posted together with the header.
// If the call fails, dst is removed from the shared memory.
func allReduceShared[T Number](o *operation, dst, src []T, red Reduction[T]) error {
	err := o.runShared(func(l *shm.Lane, h *shm.Header) error {
		if in := kernel.Bytes(src); len(in) <= shm.Inline {
			l.Post(h, shm.Offsets{}, in)
			return shm.Small(l, dst, red.Fold)
		}
		r := arenaOffsets(o, dst, src)
		l.PostVectors(h, kernel.Bytes(src), r)
		v := shm.Vectors[T]{Dst: dst, Src: src, Bounds: o.lane.chunks(len(src), red.Width), Reduce: reducerOf(red)}
		err := shm.AllReduce(l, v, shm.Everyone)
		if err != nil && r.Dst != 0 { // a rank that has read the position may still write to dst
			return errors.Join(err, o.shared.Arena.Abandon(kernel.Bytes(dst)))
		}
		return err
	})
	if err == nil {
		finish(red, dst, o.size)
	}
	return err
}

// arenaOffsets returns the positions of the vectors of a call in the arena of this rank; 0 for a
// vector elsewhere.
func arenaOffsets[T Number](o *operation, dst, src []T) shm.Offsets {
	if o.shared.Arena == nil {
		return shm.Offsets{}
	}
	return shm.Offsets{Dst: o.shared.Arena.Ref(kernel.Bytes(dst)), Src: o.shared.Arena.Ref(kernel.Bytes(src))}
}
