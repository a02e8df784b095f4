package collective

import (
	"context"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// AllToAll sends the i-th of n equal parts of src to rank i, which stores it in the part of
// dst that belongs to the sender. dst and src have the same length, a multiple of n; they
// must not overlap.
//
// Costs for n ranks and S bytes of a rank: n-1 steps and (n-1)/n S bytes sent.
func AllToAll[T Number](ctx context.Context, c *Comm, dst, src []T) error {
	return c.run(ctx, planAllToAll(c, dst, src))
}

// IAllToAll starts AllToAll.
func IAllToAll[T Number](ctx context.Context, c *Comm, dst, src []T) *Handle {
	return c.start(ctx, planAllToAll(c, dst, src))
}

// AllToAllV is AllToAll for parts of different lengths. src has the parts for all ranks one after the
// other, in the order of ranks: sendCounts[i] elements for rank i. dst gets the parts of all ranks in
// the same order: recvCounts[i] elements of rank i. So recvCounts[i] at rank j is sendCounts[j] at
// rank i; an AllToAll of the sendCounts gives every rank its recvCounts. Ranks with counts that do
// not fit each other get a *MismatchError. dst and src must not overlap.
//
// Costs for n ranks: n-1 steps, in which a rank sends its src without its own part, and a barrier of
// empty messages.
func AllToAllV[T Number](ctx context.Context, c *Comm, dst, src []T, recvCounts, sendCounts []int) error {
	return c.run(ctx, planAllToAllV(c, dst, src, recvCounts, sendCounts))
}

// IAllToAllV starts AllToAllV.
func IAllToAllV[T Number](ctx context.Context, c *Comm, dst, src []T, recvCounts, sendCounts []int) *Handle {
	return c.start(ctx, planAllToAllV(c, dst, src, recvCounts, sendCounts))
}

// planAllToAll returns the plan of AllToAll.
func planAllToAll[T Number](c *Comm, dst, src []T) plan {
	c = c.orInvalid()
	p := newPlan(c, vector{kind: transport.KindAllToAll, typ: dtype.TypeOf[T](), size: kernel.Size[T](), count: len(src), root: noRoot})
	p.check("dst", len(dst), len(src))
	if len(src)%c.size != 0 {
		p.fail("src has %d elements, want a multiple of %d ranks", len(src), c.size)
	}
	checkVectors(&p, c, dst, src, nil)
	p.body = func(o *operation) error {
		b := offsets(equalCounts(o.size, len(src)/o.size))
		return allToAll(o, dst, src, b, b, o.exchange)
	}
	return p
}

// planAllToAllV returns the plan of AllToAllV. Ranks cannot compare their counts, which differ. So
// the call has no count, and each message shows its receiver whether its sender agrees. With the
// barrier a rank returns nil only after all receivers have found that the counts agree.
func planAllToAllV[T Number](c *Comm, dst, src []T, recvCounts, sendCounts []int) plan {
	c = c.orInvalid()
	p := newPlan(c, vector{kind: transport.KindAllToAllV, typ: dtype.TypeOf[T](), size: kernel.Size[T](), root: noRoot})
	p.checkCounts(c, "dst", len(dst), recvCounts)
	p.checkCounts(c, "src", len(src), sendCounts)
	if p.err == nil && recvCounts[c.rank] != sendCounts[c.rank] {
		p.fail("rank %d sends %d elements to itself and receives %d, want equal counts", c.rank, sendCounts[c.rank], recvCounts[c.rank])
	}
	checkVectors(&p, c, dst, src, nil)
	p.needsBarrier = true
	to, from := offsets(recvCounts), offsets(sendCounts)
	p.body = func(o *operation) error { return allToAll(o, dst, src, to, from, o.exchangeWhole) }
	return p
}

// allToAll copies the parts of src, with the given bounds, to the ranks, and their parts to dst. In
// step d each rank sends to rank+d and receives from rank-d, modulo n. So no rank receives two
// messages in a step.
func allToAll[T Number](o *operation, dst, src []T, dstBounds, srcBounds []int,
	exchange func(to int, out []byte, from int, in []byte) error) error {
	part := func(v []T, bounds []int, rank int) []T { return v[bounds[rank]:bounds[rank+1]] }
	copy(part(dst, dstBounds, o.rank), part(src, srcBounds, o.rank))
	for d := 1; d < o.size; d++ {
		to, from := (o.rank+d)%o.size, (o.rank-d+o.size)%o.size
		if err := exchange(to, kernel.Bytes(part(src, srcBounds, to)), from, kernel.Bytes(part(dst, dstBounds, from))); err != nil {
			return err
		}
	}
	return nil
}
