package collective

import (
	"context"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/ring"
)

// AllReduce combines the vectors src of all ranks, element by element, into dst at
// every rank, where the result has the same bits. dst and src have one length, the
// same at all ranks; dst may be src.
//
// Costs for n ranks and S bytes: ring 2(n-1) steps and 2(n-1)/n S bytes sent;
// recursive doubling lg n steps and S lg n bytes; Rabenseifner 2 lg n steps and
// 2(n-1)/n S bytes; tree 2 lg n steps. Where n is no power of two the two in the
// middle send S bytes twice more.
func AllReduce[T Number](ctx context.Context, c *Comm, dst, src []T, op Op[T]) error {
	red := orNone(op)()
	var p plan
	planAllReduce(&p, c, dst, src, &red)
	return c.carryOut(ctx, &p, func(o *operation) error { return allReduce(o, dst, src, red) })
}

// IAllReduce starts AllReduce.
func IAllReduce[T Number](ctx context.Context, c *Comm, dst, src []T, op Op[T]) *Handle {
	red := orNone(op)()
	var p plan
	planAllReduce(&p, c, dst, src, &red)
	kept := red // which would be in memory of its own, as planAllReduce has its address
	p.body = func(o *operation) error { return allReduce(o, dst, src, kept) }
	return c.start(ctx, &p)
}

// planAllReduce leaves the body to the caller.
func planAllReduce[T Number](p *plan, c *Comm, dst, src []T, red *Reduction[T]) {
	p.describe(c.orNobody(), &vector{kind: transport.KindAllReduce, typ: dtype.TypeOf[T](), size: kernel.Size[T](), count: len(src),
		root: none, op: red.Name, ordered: !red.Commutative})
	p.check("dst", len(dst), len(src))
	checkReduction(p, red.Fold)
	checkVectors(p, c, dst, src, dst)
	p.closing = p.call.Algorithm == Ring && len(src) == 0 // of which a ring sends nothing
}

func allReduce[T Number](o *operation, dst, src []T, red Reduction[T]) error {
	switch a := o.env.Call.Algorithm; {
	case a == SharedMemory:
		return allReduceShared(o, dst, src, red)
	case a == TwoLevel:
		return allReduceLevels(o, dst, src, red)
	case a == Ring && o.size > 1:
		return ring.AllReduce(context.Background(), o.ring(), dst, src, red)
	}
	if err := allReducePaired(o, dst, src, red); err != nil {
		return err
	}
	finish(red, dst, o.size)
	return nil
}

// allReducePaired combines vectors over all ranks by any algorithm but the ring. Every
// fold takes the vector of the lower ranks first, at both partners: so reductions
// that do not commute come out right, and all ranks get the same bits.
func allReducePaired[T Number](o *operation, dst, src []T, red Reduction[T]) error {
	a := o.env.Call.Algorithm
	if a == RecursiveDoubling && o.size > 1 && isPowerOfTwo(o.size) {
		return doubling(o, subgroup{rank: o.rank, size: o.size}, dst, src, red)
	}
	copy(dst, src)
	switch {
	case o.size == 1:
		return nil
	case a == RecursiveDoubling:
		return inPowerOfTwo(o, dst, red, func(g subgroup) error { return doubling(o, g, dst, dst, red) })
	case a == Rabenseifner:
		return inPowerOfTwo(o, dst, red, func(g subgroup) error { return halving(o, g, dst, red) })
	}
	if err := reduceTree(o, dst, red, 0); err != nil {
		return err
	}
	return broadcastTree(o, kernel.Bytes(dst), 0)
}

// subgroup is the largest power of two of ranks, each of which stands for itself
// and perhaps its left neighbour.
type subgroup struct {
	rank, size int
	paired     int // ranks below it come in pairs, whose odd one is in the subgroup
}

// real returns the rank of the communicator of member i.
func (g subgroup) real(i int) int {
	if i < g.paired/2 {
		return 2*i + 1
	}
	return i + g.paired/2
}

// inPowerOfTwo lets the first ranks hand their vectors to their right neighbours, so
// that a power of two is left and the order of ranks is kept, runs reduce among
// those, and hands the results back.
func inPowerOfTwo[T Number](o *operation, v []T, red Reduction[T], reduce func(subgroup) error) error {
	g := subgroup{size: 1}
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

// doubling exchanges whole vectors with members at distance 1, 2, 4, ...: after
// each step a block of twice as many members has one result. Pieces are folded while others
// are on their way. It takes this member's vector from src, which may be dst.
func doubling[T Number](o *operation, g subgroup, dst, src []T, red Reduction[T]) error {
	size := kernel.Size[T]()
	other := scratch[T](o, min(max(1, o.pieces()/size), len(src)))
	for d := 1; d < g.size; d *= 2 {
		partner := g.real(g.rank ^ d)
		err := o.swap(partner, kernel.Bytes(src), kernel.Bytes(other), func(first, end int) {
			first, end = first/size, end/size
			foldOrdered(red, dst[first:end], src[first:end], other[:end-first], partner < o.rank)
		})
		if err != nil {
			return err
		}
		src = dst
	}
	return nil
}

// halving gives each member a smaller and smaller window of the vector to reduce,
// at distance 1, 2, 4, ..., and gathers the windows on the way back (Rabenseifner
// 2004; distances doubled so that blocks of members stay contiguous).
func halving[T Number](o *operation, g subgroup, v []T, red Reduction[T]) error {
	other := scratch[T](o, (len(v)+1)/2)
	var windows [][]T
	w := v
	for d := 1; d < g.size; d *= 2 {
		partner := g.real(g.rank ^ d)
		keep, give := halve(w, g.rank&d != 0)
		in := other[:len(keep)]
		if err := o.exchange(partner, kernel.Bytes(give), partner, kernel.Bytes(in)); err != nil {
			return err
		}
		foldOrdered(red, keep, keep, in, partner < o.rank)
		windows = append(windows, w)
		w = keep
	}
	for d := g.size / 2; d >= 1; d /= 2 {
		partner := g.real(g.rank ^ d)
		last := len(windows) - 1
		keep, give := halve(windows[last], g.rank&d != 0)
		if err := o.exchange(partner, kernel.Bytes(keep), partner, kernel.Bytes(give)); err != nil {
			return err
		}
		windows = windows[:last]
	}
	return nil
}

// halve splits w into the half to keep and the half to give away.
func halve[T any](w []T, upper bool) (keep, give []T) {
	mid := (len(w) + 1) / 2
	if upper {
		return w[mid:], w[:mid]
	}
	return w[:mid], w[mid:]
}

// foldOrdered folds v and other into dst, which may be v, the vector of the lower ranks first.
func foldOrdered[T Number](red Reduction[T], dst, v, other []T, otherIsLower bool) {
	if otherIsLower {
		red.Fold(dst, other, v)
		return
	}
	red.Fold(dst, v, other)
}
