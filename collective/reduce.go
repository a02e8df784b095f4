package collective

import (
	"context"
	"slices"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/internal/shm"
	"github.com/elrun/elrun/ring"
)

// Reduce is AllReduce with the result at root only. dst may be src. At other ranks dst is
// not used and may be nil.
//
// Costs for n ranks and S bytes: tree, lg n steps of S bytes; ring, 2(n-1) steps and at most S
// bytes sent by a rank. Both end with a barrier of empty messages.
func Reduce[T Number](ctx context.Context, c *Comm, dst, src []T, op Op[T], root int) error {
	return c.run(ctx, planReduce(c, dst, src, op, root))
}

// IReduce starts Reduce.
func IReduce[T Number](ctx context.Context, c *Comm, dst, src []T, op Op[T], root int) *Handle {
	return c.start(ctx, planReduce(c, dst, src, op, root))
}

// planReduce returns the plan of Reduce. Ranks other than root reduce in scratch memory.
func planReduce[T Number](c *Comm, dst, src []T, op Op[T], root int) plan {
	c = c.orInvalid()
	red := orEmptyOp(op)()
	p := newPlan(c, vector{kind: transport.KindReduce, typ: dtype.TypeOf[T](), size: kernel.Size[T](), count: len(src),
		root: root, op: red.Name, width: red.Width, ordered: !red.Commutative})
	p.needsBarrier = true
	checkReduction(&p, red.Fold)
	checkFreed(&p, c, src)
	if c.rank == root {
		p.check("dst", len(dst), len(src))
		checkVectors(&p, c, dst, src, dst)
	}
	p.body = func(o *operation) error {
		if o.env.Call.Algorithm == SharedMemory {
			return reduceShared(o, dst, src, red, root)
		}
		// Only root has a dst; other ranks reduce into scratch memory.
		v := dst
		if o.rank != root {
			v = scratch[T](o, len(src))
		}
		if o.env.Call.Algorithm == Ring && o.size > 1 {
			return reduceRing(o, v, src, red, root)
		}
		copy(v, src)
		if err := reduceTree(o, v, red, root); err != nil {
			return err
		}
		if o.rank == root {
			finish(red, v, o.size)
		}
		return nil
	}
	return p
}

// reduceTree reduces v to root along a binomial tree of blocks of neighbouring ranks. It destroys v
// at the other ranks. A tree with root at its top would rotate the order of ranks. So for a
// reduction that does not commute, rank 0 is at the top, and then sends the result to root.
func reduceTree[T Number](o *operation, v []T, red Reduction[T], root int) error {
	top := root
	if !red.Commutative {
		top = 0
	}
	relative := (o.rank - top + o.size) % o.size
	other := scratch[T](o, len(v))
	for d := 1; d < o.size; d *= 2 {
		if relative&d != 0 {
			if err := o.send((o.rank-d+o.size)%o.size, kernel.Bytes(v)); err != nil {
				return err
			}
			break
		}
		// There is no such child: the tree is not complete unless the size is a power of two.
		if relative+d >= o.size {
			continue
		}
		if err := o.recv((o.rank+d)%o.size, kernel.Bytes(other)); err != nil {
			return err
		}
		red.Fold(v, v, other)
	}
	return o.transfer(top, root, kernel.Bytes(v))
}

// reduceRing reduces by a reduce-scatter around a ring, after which root gathers the chunks.
func reduceRing[T Number](o *operation, v, src []T, red Reduction[T], root int) error {
	b := ring.ChunksOf(len(src), o.size, red.Width)
	mine := v[b[o.rank]:b[o.rank+1]]
	if err := ring.ReduceScatter(context.Background(), o.ring(), mine, src, b, red); err != nil {
		return err
	}
	return gatherDirect(o, v, mine, b, root)
}

// reduceShared is Reduce in shared memory.
func reduceShared[T Number](o *operation, dst, src []T, red Reduction[T], root int) error {
	v := shm.Vectors[T]{Dst: dst, Src: src, Bounds: ring.ChunksOf(len(src), o.size, red.Width), Reduce: reducerOf(red)}
	err := o.runShared(func(l *shm.Lane, h *shm.Header) error {
		l.Post(h, shm.Offsets{})
		return shm.AllReduce(l, v, root)
	})
	if err == nil && o.rank == root {
		finish(red, dst, o.size)
	}
	return err
}

// ReduceScatter reduces the vectors src of all ranks. Each rank gets its Chunk of the result in
// dst, which has the length of that chunk. dst may be the part of src at the position of the chunk,
// but no other part. For an op of width w the chunks are those of len(src)/w groups.
//
// Costs for n ranks and S bytes: ring, n-1 steps and (n-1)/n S bytes sent; tree, 2 lg n
// steps, up and down.
func ReduceScatter[T Number](ctx context.Context, c *Comm, dst, src []T, op Op[T]) error {
	return c.run(ctx, planReduceScatter(c, dst, src, nil, false, op))
}

// IReduceScatter starts ReduceScatter.
func IReduceScatter[T Number](ctx context.Context, c *Comm, dst, src []T, op Op[T]) *Handle {
	return c.start(ctx, planReduceScatter(c, dst, src, nil, false, op))
}

// ReduceScatterV is ReduceScatter with chunks of given lengths: rank i gets counts[i] elements of the
// result, after those of the lower ranks, and the length of src is the sum. All ranks pass the same
// counts.
//
// It costs as much as ReduceScatter; around a ring every step takes as long as the longest chunk.
func ReduceScatterV[T Number](ctx context.Context, c *Comm, dst, src []T, counts []int, op Op[T]) error {
	return c.run(ctx, planReduceScatter(c, dst, src, counts, true, op))
}

// IReduceScatterV starts ReduceScatterV.
func IReduceScatterV[T Number](ctx context.Context, c *Comm, dst, src []T, counts []int, op Op[T]) *Handle {
	return c.start(ctx, planReduceScatter(c, dst, src, counts, true, op))
}

// planReduceScatter returns the plan of ReduceScatter, or of ReduceScatterV if varied is true.
func planReduceScatter[T Number](c *Comm, dst, src []T, counts []int, varied bool, op Op[T]) plan {
	c = c.orInvalid()
	red := orEmptyOp(op)()
	b := ring.ChunksOf(len(src), c.size, red.Width)
	if varied {
		b = offsets(counts)
	}
	p := newPlan(c, vector{kind: transport.KindReduceScatter, typ: dtype.TypeOf[T](), size: kernel.Size[T](), count: len(src),
		root: noRoot, op: red.Name, width: red.Width, ordered: !red.Commutative, counts: counts})
	checkReduction(&p, red.Fold)
	if varied {
		p.checkCounts(c, "src", len(src), counts)
	}
	if p.err == nil {
		p.check("dst", len(dst), b[c.rank+1]-b[c.rank])
	}
	if p.err == nil {
		checkVectors(&p, c, src, dst, src[b[c.rank]:b[c.rank+1]])
	}
	// A ring sends no message for an empty chunk. A call with an empty chunk ends with a barrier,
	// so that no rank returns before all ranks have begun the call.
	p.needsBarrier = p.call.Algorithm == Tree || len(src) < c.size*max(1, red.Width) || slices.Contains(counts, 0)
	p.body = func(o *operation) error {
		if o.env.Call.Algorithm == SharedMemory {
			return reduceScatterShared(o, dst, src, b, red)
		}
		if o.size == 1 {
			copy(dst, src)
		} else if o.env.Call.Algorithm == Ring {
			return ring.ReduceScatter(context.Background(), o.ring(), dst, src, b, red)
		} else if err := reduceThenScatter(o, dst, src, red, b); err != nil {
			return err
		}
		finish(red, dst, o.size)
		return nil
	}
	return p
}

// reduceThenScatter reduces to rank 0 along a tree and scatters the chunks, whose bounds
// are b.
func reduceThenScatter[T Number](o *operation, dst, src []T, red Reduction[T], b []int) error {
	v := scratch[T](o, len(src))
	copy(v, src)
	if err := reduceTree(o, v, red, 0); err != nil {
		return err
	}
	return scatterTree(o, dst, v, b, 0)
}

// reduceScatterShared is ReduceScatter in shared memory; b are the bounds of the chunks.
func reduceScatterShared[T Number](o *operation, dst, src []T, b []int, red Reduction[T]) error {
	v := shm.Vectors[T]{Dst: dst, Src: src, Bounds: b, Reduce: reducerOf(red)}
	err := o.runShared(func(l *shm.Lane, h *shm.Header) error {
		l.Post(h, shm.Offsets{})
		return shm.ReduceScatter(l, v)
	})
	if err == nil {
		finish(red, dst, o.size)
	}
	return err
}
