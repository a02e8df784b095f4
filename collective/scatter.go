package collective

import (
	"context"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/internal/kernel"
)

// Scatter splits src at root into n equal parts and sends part i to rank i, into dst. At
// other ranks src is not used and may be nil. At root dst may be the caller's own part of
// src.
//
// It costs as much as Gather.
func Scatter[T Number](ctx context.Context, c *Comm, dst, src []T, root int) error {
	return c.run(ctx, planScatter(c, dst, src, nil, false, root))
}

// IScatter starts Scatter.
func IScatter[T Number](ctx context.Context, c *Comm, dst, src []T, root int) *Handle {
	return c.start(ctx, planScatter(c, dst, src, nil, false, root))
}

// ScatterV is Scatter for parts of different lengths: rank i gets counts[i] elements, and
// the length of src is the sum. All ranks pass the same counts.
func ScatterV[T Number](ctx context.Context, c *Comm, dst, src []T, counts []int, root int) error {
	return c.run(ctx, planScatter(c, dst, src, counts, true, root))
}

// IScatterV starts ScatterV.
func IScatterV[T Number](ctx context.Context, c *Comm, dst, src []T, counts []int, root int) *Handle {
	return c.start(ctx, planScatter(c, dst, src, counts, true, root))
}

// planScatter returns the plan of Scatter, or of ScatterV if varied is true.
func planScatter[T Number](c *Comm, dst, src []T, counts []int, varied bool, root int) plan {
	c = c.orInvalid()
	if !varied {
		counts = equalCounts(c.size, len(dst))
	}
	p := planParts[T](c, transport.KindScatter, counts, varied, root)
	if p.err == nil {
		p.check("dst", len(dst), counts[c.rank])
	}
	checkFreed(&p, c, dst)
	if c.rank == root {
		p.check("src", len(src), int(p.call.Count))
		checkPart(&p, c, src, dst, counts)
	}
	p.body = func(o *operation) error {
		if o.env.Call.Algorithm == Tree {
			return scatterTree(o, dst, src, offsets(counts), root)
		}
		return scatterDirect(o, dst, src, offsets(counts), root)
	}
	return p
}

// scatterDirect sends every rank its part directly from root.
func scatterDirect[T Number](o *operation, dst, src []T, b []int, root int) error {
	if o.rank != root {
		return o.recv(root, kernel.Bytes(dst))
	}
	for rank := range o.size {
		if rank == root {
			continue
		}
		if err := o.send(rank, kernel.Bytes(src[b[rank]:b[rank+1]])); err != nil {
			return err
		}
	}
	copy(dst, src[b[root]:b[root+1]])
	return nil
}

// scatterTree sends the parts down the tree of gatherTree: each message has the parts of a whole
// block of ranks.
func scatterTree[T Number](o *operation, dst, src []T, b []int, root int) error {
	t := newBlockTree(o, b, root)
	buf := scratch[T](o, t.width(t.extent))
	if o.rank == root {
		n := copy(buf, src[b[root]:])
		copy(buf[n:], src)
	} else if err := o.recv((o.rank-t.parent+o.size)%o.size, kernel.Bytes(buf)); err != nil {
		return err
	}
	d := 1
	// The largest block goes first, because its receiver sends to the most other ranks.
	for 2*d < t.extent {
		d *= 2
	}
	for ; d >= 1; d /= 2 {
		if d >= t.extent {
			continue
		}
		part := buf[t.width(d):t.width(min(2*d, t.extent))]
		if err := o.send((o.rank+d)%o.size, kernel.Bytes(part)); err != nil {
			return err
		}
	}
	copy(dst, buf)
	return nil
}
