package collective

import (
	"context"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/internal/shm"
)

// Barrier returns when all ranks have called it. It takes ceil(lg n) steps of empty messages
// (dissemination barrier: Hensgen, Finkel and Manber 1988), or none if all ranks share memory.
func Barrier(ctx context.Context, c *Comm) error { return c.run(ctx, planBarrier(c)) }

// IBarrier starts Barrier.
func IBarrier(ctx context.Context, c *Comm) *Handle { return c.start(ctx, planBarrier(c)) }

// planBarrier returns the plan of Barrier.
func planBarrier(c *Comm) plan {
	p := newPlan(c.orInvalid(), vector{kind: transport.KindBarrier, root: noRoot})
	p.body = (*operation).disseminate
	if p.call.Algorithm == SharedMemory {
		p.body = barrierShared
	}
	return p
}

// barrierShared is Barrier in shared memory.
func barrierShared(o *operation) error {
	return o.runShared(func(l *shm.Lane, h *shm.Header) error {
		l.Post(h, shm.Offsets{})
		return l.AwaitAll()
	})
}
