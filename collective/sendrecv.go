package collective

import (
	"cmp"
	"context"
)

// Peers are the two partners of a rank in SendRecv: the rank to which it sends and the rank from
// which it receives. Both may be the same rank, the caller's own rank, or NoRank; From may be
// AnySource.
type Peers struct {
	To, From int
}

// SendRecv sends src to rank p.To and receives dst from rank p.From at the same time, as a Send and
// a Recv of one tag. Their lengths may differ, and dst and src must not overlap. SendRecv cannot
// deadlock with other SendRecvs: a ring of them or a pair always ends. It matches every Send, Recv
// and SendRecv of the tag.
func SendRecv[T Number](ctx context.Context, c *Comm, p Peers, tag int, dst, src []T) error {
	c = c.orInvalid()
	send, recv := planSend(c, p.To, tag, src), planRecv(c, p.From, tag, dst, nil)
	checkVectors(&send, c, dst, src, nil)
	// A bad argument of one call is the error of both, so that the caller gets it first.
	send.err = cmp.Or(send.err, recv.err)
	recv.err = send.err
	sent := c.start(ctx, send)
	err := c.run(ctx, recv)
	// src belongs to the Send until its end. An error of one call revokes, which ends the other.
	<-sent.Done()
	if err != nil {
		return err
	}
	return sent.ended()
}
