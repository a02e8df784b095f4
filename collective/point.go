package collective

import (
	"cmp"
	"context"
	"math"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// MaxTag is the largest tag of Send and Recv.
const MaxTag = pointBit - 1

// The special ranks and the special tag of point-to-point calls. They are far from all ranks and
// tags: a neighbour computed wrongly, such as rank -1, is an error.
const (
	// AnySource as the rank from which to receive means any rank of the communicator, the caller's
	// own included.
	AnySource = math.MinInt32 + iota
	// AnyTag as the tag of a receive means any tag. Messages of one rank with different tags are
	// received in the order of their arrival, which may differ from the order of the Sends.
	AnyTag
	// NoRank as the other rank means that there is none, as at the edge of a Grid that is not
	// periodic. The call does nothing, and a dst does not change.
	NoRank
)

// Message describes a message of Send or ISend.
type Message struct {
	From int        // rank of the sender, or NoRank
	Tag  int        // from 0 to MaxTag
	Len  int        // number of elements
	Type dtype.Type // of the elements
}

// Send sends src to rank to, which may be the caller's own rank if the matching Recv is in
// progress. Messages of one tag between two ranks arrive in the order of the Sends and ISends, and
// are received in the order of the Recvs and IRecvs. Send returns when src may be reused. For a
// short message that is usually before the message is received, but Send may block until the
// receiver calls Recv, and does for a long one. So ranks that send to each other use SendRecv or
// ISend: if they all wait in Send, they get a *DeadlockError. tag is from 0 to MaxTag. For NoRank it
// sends nothing.
func Send[T Number](ctx context.Context, c *Comm, to, tag int, src []T) error {
	return c.run(ctx, planSend(c, to, tag, src))
}

// ISend starts Send. src belongs to the call until the Handle is done.
func ISend[T Number](ctx context.Context, c *Comm, to, tag int, src []T) *Handle {
	return c.start(ctx, planSend(c, to, tag, src))
}

// Recv receives a message of exactly len(dst) elements of T from rank from. A message of
// another length or type is a *MismatchError. from may be AnySource or NoRank, and tag may be
// AnyTag. If the sender or the length is not known, call Probe first; or call IRecv, whose Handle
// has the sender.
func Recv[T Number](ctx context.Context, c *Comm, from, tag int, dst []T) error {
	return c.run(ctx, planRecv(c, from, tag, dst, nil))
}

// IRecv starts Recv. dst belongs to the call until the Handle is done. Then Handle.Message describes
// the message.
func IRecv[T Number](ctx context.Context, c *Comm, from, tag int, dst []T) *Handle {
	return c.start(ctx, planRecv(c, from, tag, dst, new(Message)))
}

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

// Probe waits for a message that Recv with the same from and tag would receive, and describes it
// without receiving it. from may be AnySource, and tag may be AnyTag. A Recv with the sender and the
// tag of the result receives the message, unless another goroutine receives it first:
//
//	m, err := collective.Probe(ctx, c, collective.AnySource, tag)
//	...
//	v := make([]float64, m.Len)
//	err = collective.Recv(ctx, c, m.From, m.Tag, v)
func Probe(ctx context.Context, c *Comm, from, tag int) (Message, error) {
	m := Message{From: NoRank}
	p := planPoint(c, from, tag, vector{})
	p.probe = true
	p.body = func(o *operation) (err error) {
		if from != NoRank {
			m, _, err = o.match.wait(o)
		}
		return err
	}
	err := c.run(ctx, p)
	return m, err
}

// planSend returns the plan of Send. Sends with the same peer and tag run one after the other, by a
// ticket lock, so that their segments do not mix.
func planSend[T Number](c *Comm, to, tag int, src []T) plan {
	p := planPoint(c, to, tag, vectorOf(src))
	if to == AnySource || tag == AnyTag {
		p.fail("rank or tag of any kind: a Send needs the rank and the tag")
	}
	checkFreed(&p, c, src)
	p.send = true
	p.body = func(o *operation) error {
		if to == NoRank {
			return nil
		}
		if err := o.lock.acquire(o); err != nil {
			return err
		}
		return o.send(to, kernel.Bytes(src))
	}
	return p
}

// planRecv returns the plan of Recv. Recvs with the same peer and tag run one after the other, like
// Sends. If m is not nil, the call stores the description of the message there.
func planRecv[T Number](c *Comm, from, tag int, dst []T, m *Message) plan {
	p := planPoint(c, from, tag, vectorOf(dst))
	checkFreed(&p, c, dst)
	p.message = m
	p.body = func(o *operation) error {
		got, err := Message{From: from, Tag: tag, Len: len(dst), Type: o.env.Call.Type}, error(nil)
		switch {
		case from == NoRank:
			got = Message{From: NoRank}
		case o.match != nil:
			got, err = o.match.receive(o, kernel.Bytes(dst))
		default:
			if err = o.lock.acquire(o); err == nil {
				err = o.recv(from, kernel.Bytes(dst))
			}
		}
		if m != nil && err == nil {
			*m = got
		}
		return err
	}
	return p
}

// vectorOf describes the vector of a Send or Recv.
func vectorOf[T Number](v []T) vector {
	return vector{typ: dtype.TypeOf[T](), size: kernel.Size[T](), count: len(v)}
}

// planPoint describes a point-to-point call with the vector v, and checks its tag and its peer.
func planPoint(c *Comm, peer, tag int, v vector) plan {
	c = c.orInvalid()
	v.kind, v.root = transport.KindPoint, noRoot
	p := newPlan(c.withAlgorithm(Auto), v)
	if tag != AnyTag && (tag < 0 || tag > MaxTag) {
		p.fail("tag %d, want 0 to %d", tag, MaxTag)
	}
	if peer != AnySource && peer != NoRank && (peer < 0 || peer >= c.size) {
		p.fail("rank %d of %d", peer, c.size)
	}
	p.tag, p.peer = tag, peer
	return p
}
