package collective

import (
	"context"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// Scan is an inclusive prefix reduction: it reduces the vectors src of the ranks from 0 to
// the caller into dst. dst may be src.
//
// Costs for n ranks and S bytes: lg n steps of S bytes (Hillis, Steele 1986), and a barrier of
// empty messages.
func Scan[T Number](ctx context.Context, c *Comm, dst, src []T, op Op[T]) error {
	return c.run(ctx, planScan(c, transport.KindScan, dst, src, op))
}

// IScan starts Scan.
func IScan[T Number](ctx context.Context, c *Comm, dst, src []T, op Op[T]) *Handle {
	return c.start(ctx, planScan(c, transport.KindScan, dst, src, op))
}

// ExScan is an exclusive prefix reduction: it reduces the vectors src of the ranks below the caller
// into dst. dst may be src. At rank 0 dst does not change. It costs as much as Scan.
func ExScan[T Number](ctx context.Context, c *Comm, dst, src []T, op Op[T]) error {
	return c.run(ctx, planScan(c, transport.KindExScan, dst, src, op))
}

// IExScan starts ExScan.
func IExScan[T Number](ctx context.Context, c *Comm, dst, src []T, op Op[T]) *Handle {
	return c.start(ctx, planScan(c, transport.KindExScan, dst, src, op))
}

// planScan returns the plan of Scan or ExScan, according to kind. Each call computes both prefixes.
// The prefixes and the received vector are scratch vectors, so the call needs three times the
// memory of src. After an error dst is undefined: the closing barrier may fail after dst was
// written.
func planScan[T Number](c *Comm, kind transport.Kind, dst, src []T, op Op[T]) plan {
	c = c.orInvalid()
	red := orEmptyOp(op)()
	p := newPlan(c, vector{kind: kind, typ: dtype.TypeOf[T](), size: kernel.Size[T](), count: len(src),
		root: noRoot, op: red.Name, width: red.Width, ordered: !red.Commutative})
	p.check("dst", len(dst), len(src))
	checkReduction(&p, red.Fold)
	checkVectors(&p, c, dst, src, dst)
	p.needsBarrier = true
	p.body = func(o *operation) error {
		with, before := scratch[T](o, len(src)), scratch[T](o, len(src))
		copy(with, src)
		if err := scanDoubling(o, with, before, red); err != nil {
			return err
		}
		if kind == transport.KindScan {
			copy(dst, with)
			finish(red, dst, o.rank+1)
		} else if o.rank > 0 {
			copy(dst, before)
			finish(red, dst, o.rank)
		}
		return nil
	}
	return p
}

// scanDoubling computes both prefix reductions: with includes this rank, before does not. After the
// step of distance d, with is the reduction of the last 2d ranks up to this rank, and before is the
// reduction of the same ranks without this rank.
func scanDoubling[T Number](o *operation, with, before []T, red Reduction[T]) error {
	in := scratch[T](o, len(with))
	for d := 1; d < o.size; d *= 2 {
		if err := o.shift(d, kernel.Bytes(with), kernel.Bytes(in)); err != nil {
			return err
		}
		// There is no rank o.rank-d, so nothing was received and the prefixes are complete.
		if o.rank < d {
			continue
		}
		if d == 1 {
			copy(before, in)
		} else {
			red.Fold(before, in, before)
		}
		red.Fold(with, in, with)
	}
	return nil
}
