package collective

import (
	"context"
	"slices"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/internal/shm"
	"github.com/elrun/elrun/ring"
)

// AllGather concatenates the vectors src of all ranks, in the order of ranks, into dst at
// every rank. All src have the same length, and dst has n times that length. src may be
// this rank's own part of dst.
//
// Costs for n ranks and S bytes in total: ring, n-1 steps and (n-1)/n S bytes sent;
// recursive doubling, if n is a power of two, lg n steps and the same number of bytes;
// tree, a gather and a broadcast.
func AllGather[T Number](ctx context.Context, c *Comm, dst, src []T) error {
	return c.run(ctx, planAllGather(c, dst, src, nil, false))
}

// IAllGather starts AllGather.
func IAllGather[T Number](ctx context.Context, c *Comm, dst, src []T) *Handle {
	return c.start(ctx, planAllGather(c, dst, src, nil, false))
}

// AllGatherV is AllGather for vectors of different lengths: rank i gives counts[i]
// elements, and the length of dst is the sum. All ranks pass the same counts.
func AllGatherV[T Number](ctx context.Context, c *Comm, dst, src []T, counts []int) error {
	return c.run(ctx, planAllGather(c, dst, src, counts, true))
}

// IAllGatherV starts AllGatherV.
func IAllGatherV[T Number](ctx context.Context, c *Comm, dst, src []T, counts []int) *Handle {
	return c.start(ctx, planAllGather(c, dst, src, counts, true))
}

// planAllGather returns the plan of AllGather, or of AllGatherV if varied is true.
func planAllGather[T Number](c *Comm, dst, src []T, counts []int, varied bool) plan {
	c = c.orInvalid()
	if !varied {
		counts = equalCounts(c.size, len(src))
	}
	p := planParts[T](c, transport.KindAllGather, counts, varied, noRoot)
	if p.err == nil {
		p.check("src", len(src), counts[c.rank])
	}
	p.check("dst", len(dst), int(p.call.Count))
	checkPart(&p, c, dst, src, counts)
	p.needsBarrier = slices.Contains(counts, 0) // a ring sends no message for an empty part
	p.body = func(o *operation) error {
		b := offsets(counts)
		if o.env.Call.Algorithm == SharedMemory {
			return gatherShared(o, dst, src, b, shm.Everyone)
		}
		copy(dst[b[o.rank]:b[o.rank+1]], src)
		return allGatherInPlace(o, dst, b)
	}
	return p
}

// allGatherInPlace completes v at all ranks. Initially each rank has only its own part, from
// b[rank] to b[rank+1]. b has the bounds of all parts.
func allGatherInPlace[T Number](o *operation, v []T, b []int) error {
	if o.size == 1 {
		return nil
	}
	switch {
	case o.env.Call.Algorithm == Tree:
		if err := gatherTree(o, v, v[b[o.rank]:b[o.rank+1]], b, 0); err != nil {
			return err
		}
		return broadcastTree(o, kernel.Bytes(v), 0)
	case o.env.Call.Algorithm == RecursiveDoubling && isPowerOfTwo(o.size):
		return allGatherDoubling(o, v, b)
	}
	return ring.AllGather(context.Background(), o.ring(), v, b)
}

// allGatherDoubling exchanges blocks of 1, 2, 4, ... parts with the ranks at distance 1, 2, 4, ...
func allGatherDoubling[T Number](o *operation, v []T, b []int) error {
	for d := 1; d < o.size; d *= 2 {
		partner := o.rank ^ d
		// Blocks are aligned to their length d, so the block of a rank begins at its rank with the
		// low bits cleared.
		mine, theirs := o.rank&^(d-1), partner&^(d-1)
		out, in := v[b[mine]:b[mine+d]], v[b[theirs]:b[theirs+d]]
		if err := o.exchange(partner, kernel.Bytes(out), partner, kernel.Bytes(in)); err != nil {
			return err
		}
	}
	return nil
}
