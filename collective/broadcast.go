package collective

import (
	"context"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/internal/shm"
	"github.com/elrun/elrun/ring"
)

// Broadcast copies buf of root into buf of every rank. buf has the same length at all ranks.
//
// Costs for n ranks and S bytes: with a tree, lg n steps of S bytes each; with a ring, which is a
// pipeline of segments, n-2 steps of one segment each, plus the S bytes that a rank sends. Both end
// with a barrier, so that a rank that returns without an error knows that all ranks have begun the
// call.
func Broadcast[T Number](ctx context.Context, c *Comm, buf []T, root int) error {
	return c.run(ctx, planBroadcast(c, buf, root))
}

// IBroadcast starts Broadcast.
func IBroadcast[T Number](ctx context.Context, c *Comm, buf []T, root int) *Handle {
	return c.start(ctx, planBroadcast(c, buf, root))
}

// planBroadcast returns the plan of Broadcast. buf is the source at root, and the destination at
// the other ranks. After an error the destination is undefined.
func planBroadcast[T Number](c *Comm, buf []T, root int) plan {
	p := newPlan(c.orInvalid(), vector{kind: transport.KindBroadcast, typ: dtype.TypeOf[T](), size: kernel.Size[T](), count: len(buf), root: root})
	checkFreed(&p, c, buf)
	p.needsBarrier = true
	p.body = func(o *operation) error {
		if o.size == 1 {
			return nil
		}
		if o.env.Call.Algorithm == SharedMemory {
			return broadcastShared(o, buf, root)
		}
		if o.env.Call.Algorithm == Tree {
			return broadcastTree(o, kernel.Bytes(buf), root)
		}
		return ring.Broadcast(context.Background(), o.ring(), buf, root)
	}
	return p
}

// broadcastTree sends buf down a binomial tree, to the farthest ranks first, because their subtrees
// are the deepest. Ranks are counted from root.
func broadcastTree(o *operation, buf []byte, root int) error {
	relative := (o.rank - root + o.size) % o.size
	d := 1
	// The lowest bit set in relative is the distance to the parent. At root no bit is set: root has
	// no parent.
	for ; d < o.size; d *= 2 {
		if relative&d == 0 {
			continue
		}
		if err := o.recv((o.rank-d+o.size)%o.size, buf); err != nil {
			return err
		}
		break
	}
	for d /= 2; d >= 1; d /= 2 {
		if relative+d >= o.size {
			continue
		}
		if err := o.send((o.rank+d)%o.size, buf); err != nil {
			return err
		}
	}
	return nil
}

// broadcastShared is Broadcast in shared memory, implemented as an allgather in which only the part
// of root is not empty.
func broadcastShared[T Number](o *operation, buf []T, root int) error {
	b := make([]int, o.size+1)
	for i := root + 1; i < len(b); i++ {
		b[i] = len(buf)
	}
	src := buf
	if o.rank != root {
		src = nil
	}
	return gatherShared(o, buf, src, b, shm.Everyone)
}
