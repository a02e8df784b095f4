package collective

import (
	"context"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// Gather concatenates the vectors src of all ranks, in the order of ranks, into dst at
// root. All src have the same length, and dst has n times that length. At other ranks dst
// is not used and may be nil. At root src may be root's own part of dst.
//
// Costs for n ranks and S bytes in total: tree, lg n steps and at most S/2 lg n bytes sent by all
// ranks together; direct, n-1 steps at root and S/n bytes sent by each other rank. Both end with a
// barrier of empty messages.
func Gather[T Number](ctx context.Context, c *Comm, dst, src []T, root int) error {
	return c.run(ctx, planGather(c, dst, src, nil, false, root))
}

// IGather starts Gather.
func IGather[T Number](ctx context.Context, c *Comm, dst, src []T, root int) *Handle {
	return c.start(ctx, planGather(c, dst, src, nil, false, root))
}

// GatherV is Gather for vectors of different lengths: rank i gives counts[i] elements, and
// the length of dst is the sum. All ranks pass the same counts.
func GatherV[T Number](ctx context.Context, c *Comm, dst, src []T, counts []int, root int) error {
	return c.run(ctx, planGather(c, dst, src, counts, true, root))
}

// IGatherV starts GatherV.
func IGatherV[T Number](ctx context.Context, c *Comm, dst, src []T, counts []int, root int) *Handle {
	return c.start(ctx, planGather(c, dst, src, counts, true, root))
}

// planGather returns the plan of Gather, or of GatherV if varied is true. Only root checks the
// length of dst, as the other ranks do not use it. A mistake of one rank is in p.err and ends the
// call at every rank.
func planGather[T Number](c *Comm, dst, src []T, counts []int, varied bool, root int) plan {
	c = c.orInvalid()
	if !varied {
		counts = equalCounts(c.size, len(src))
	}
	p := planParts[T](c, transport.KindGather, counts, varied, root)
	if p.err == nil {
		p.check("src", len(src), counts[c.rank])
	}
	checkFreed(&p, c, src)
	if c.rank == root {
		p.check("dst", len(dst), int(p.call.Count))
		checkPart(&p, c, dst, src, counts)
	}
	p.body = func(o *operation) error {
		if o.env.Call.Algorithm == Tree {
			return gatherTree(o, dst, src, offsets(counts), root)
		}
		return gatherDirect(o, dst, src, offsets(counts), root)
	}
	return p
}

// planParts describes a gather, scatter or allgather with one part per rank. If varied is true, the
// call carries a hash of the counts, so that ranks with different counts find a mismatch.
func planParts[T Number](c *Comm, kind transport.Kind, counts []int, varied bool, root int) plan {
	sum, err := c.total(counts)
	v := vector{kind: kind, typ: dtype.TypeOf[T](), size: kernel.Size[T](), count: sum, root: root}
	if varied {
		v.counts = counts
	}
	p := newPlan(c, v)
	p.needsBarrier = root != noRoot
	if err != nil {
		p.err = err
	}
	return p
}

// gatherDirect sends the part of every rank, from b[rank] to b[rank+1], directly to root.
func gatherDirect[T Number](o *operation, dst, src []T, b []int, root int) error {
	if o.rank != root {
		return o.send(root, kernel.Bytes(src))
	}
	copy(dst[b[root]:b[root+1]], src)
	for rank := range o.size {
		// Parts are received in the order of ranks. A part that arrives before its turn stays in
		// the mailbox of the transport.
		if rank == root {
			continue
		}
		if err := o.recv(rank, kernel.Bytes(dst[b[rank]:b[rank+1]])); err != nil {
			return err
		}
	}
	return nil
}

// gatherTree sends the parts up a binomial tree. Each rank collects a block of consecutive
// ranks, counted from root; blocks double in size.
func gatherTree[T Number](o *operation, dst, src []T, b []int, root int) error {
	t := newBlockTree(o, b, root)
	buf := scratch[T](o, t.width(t.extent))
	copy(buf, src)
	for d := 1; d < t.extent; d *= 2 {
		if t.relative+d >= o.size {
			break
		}
		part := buf[t.width(d):t.width(min(2*d, t.extent))]
		if err := o.recv((o.rank+d)%o.size, kernel.Bytes(part)); err != nil {
			return err
		}
	}
	if o.rank != root {
		return o.send((o.rank-t.parent+o.size)%o.size, kernel.Bytes(buf))
	}
	n := copy(dst[b[root]:], buf) // buf has the parts of the ranks from root to the last, then from 0 on
	copy(dst, buf[n:])
	return nil
}

// blockTree is the position of a rank in a binomial tree in which each rank handles the parts of a
// block of ranks: itself and the following ranks, modulo the number of ranks. Ranks are counted
// from root.
type blockTree struct {
	o        *operation
	b        []int // bounds of the parts, by rank
	relative int   // rank counted from root
	extent   int   // number of ranks in the block
	parent   int   // distance to the parent, 0 at root
}

// newBlockTree returns the position of this rank in the tree with the given root.
func newBlockTree(o *operation, b []int, root int) blockTree {
	t := blockTree{o: o, b: b, relative: (o.rank - root + o.size) % o.size, extent: o.size}
	for d := 1; d < o.size; d *= 2 {
		if t.relative&d != 0 {
			t.parent = d
			t.extent = min(d, o.size-t.relative)
			break
		}
	}
	return t
}

// width returns the number of elements of the first n ranks of the block.
func (b blockTree) width(n int) int {
	sum := 0
	for i := range n {
		rank := (b.o.rank + i) % b.o.size
		sum += b.b[rank+1] - b.b[rank]
	}
	return sum
}
