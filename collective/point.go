package collective

import (
	"context"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// MaxTag is the largest tag of Send and Recv.
const MaxTag = pointBit - 1

// Send sends src to rank to, which may be the caller's own rank if the matching Recv is in
// progress. Messages of one tag between two ranks arrive in the order of the Sends and ISends, and
// are received in the order of the Recvs and IRecvs. Send returns when src may be reused. For a
// short message that is usually before the message is received, but Send may block until the
// receiver calls Recv, and does for a long one. So ranks that send to each other use ISend: if they
// all wait in Send, they get a *DeadlockError. tag is from 0 to MaxTag.
func Send[T Number](ctx context.Context, c *Comm, to, tag int, src []T) error {
	return c.run(ctx, planSend(c, to, tag, src))
}

// ISend starts Send. src belongs to the call until the Handle is done.
func ISend[T Number](ctx context.Context, c *Comm, to, tag int, src []T) *Handle {
	return c.start(ctx, planSend(c, to, tag, src))
}

// Recv receives a message of exactly len(dst) elements of T from rank from. A message of
// another length or type is a *MismatchError.
func Recv[T Number](ctx context.Context, c *Comm, from, tag int, dst []T) error {
	return c.run(ctx, planRecv(c, from, tag, dst))
}

// IRecv starts Recv. dst belongs to the call until the Handle is done.
func IRecv[T Number](ctx context.Context, c *Comm, from, tag int, dst []T) *Handle {
	return c.start(ctx, planRecv(c, from, tag, dst))
}

// planSend returns the plan of Send. Sends with the same peer and tag run one after the other, by a
// ticket lock, so that their segments do not mix.
func planSend[T Number](c *Comm, to, tag int, src []T) plan {
	p := planPoint[T](c, to, tag, len(src))
	checkFreed(&p, c, src)
	p.send = true
	p.body = func(o *operation) error {
		if err := o.lock.acquire(o); err != nil {
			return err
		}
		return o.send(to, kernel.Bytes(src))
	}
	return p
}

// planRecv returns the plan of Recv. Recvs with the same peer and tag run one after the other, like
// Sends.
func planRecv[T Number](c *Comm, from, tag int, dst []T) plan {
	p := planPoint[T](c, from, tag, len(dst))
	checkFreed(&p, c, dst)
	p.body = func(o *operation) error {
		if err := o.lock.acquire(o); err != nil {
			return err
		}
		return o.recv(from, kernel.Bytes(dst))
	}
	return p
}

// planPoint describes a Send or Recv and checks its tag and its peer.
func planPoint[T Number](c *Comm, peer, tag, count int) plan {
	c = c.orInvalid()
	p := newPlan(c.withAlgorithm(Auto), vector{kind: transport.KindPoint, typ: dtype.TypeOf[T](), size: kernel.Size[T](), count: count, root: noRoot})
	if tag < 0 || tag > MaxTag {
		p.fail("tag %d, want 0 to %d", tag, MaxTag)
	}
	if peer < 0 || peer >= c.size {
		p.fail("rank %d of %d", peer, c.size)
	}
	p.tag, p.peer = uint32(tag), peer
	return p
}
