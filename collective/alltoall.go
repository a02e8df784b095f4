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

// planAllToAll returns the plan of AllToAll. In step d each rank sends to rank+d and receives from
// rank-d, modulo n. So no rank receives two messages in a step.
func planAllToAll[T Number](c *Comm, dst, src []T) plan {
	c = c.orInvalid()
	p := newPlan(c, vector{kind: transport.KindAllToAll, typ: dtype.TypeOf[T](), size: kernel.Size[T](), count: len(src), root: noRoot})
	p.check("dst", len(dst), len(src))
	if len(src)%c.size != 0 {
		p.fail("src has %d elements, want a multiple of %d ranks", len(src), c.size)
	}
	checkVectors(&p, c, dst, src, nil)
	p.body = func(o *operation) error {
		k := len(src) / o.size
		copy(dst[o.rank*k:(o.rank+1)*k], src[o.rank*k:])
		for d := 1; d < o.size; d++ {
			to, from := (o.rank+d)%o.size, (o.rank-d+o.size)%o.size
			out, in := src[to*k:(to+1)*k], dst[from*k:(from+1)*k]
			if err := o.exchange(to, kernel.Bytes(out), from, kernel.Bytes(in)); err != nil {
				return err
			}
		}
		return nil
	}
	return p
}
