// Package mem is the network between goroutines of one process, for tests and for groups of one
// member. It works in synctest bubbles.
//
// Network is a carrier of package mesh, for the members of elastic groups in one process:
//
//	network := mem.NewNetwork()
//	defer network.Close()
//	g, err := elastic.Join(ctx, elastic.Config{Endpoint: network.Endpoint(self), ...})
//
// New returns transports without a network, for callers that need only the calls:
//
//	ts := mem.New(2)
//	go ts[0].Send(ctx, 1, envelope, data)
//	err := ts[1].Recv(ctx, 0, envelope, buf)
package mem

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/transport/mailbox"
)

// Transport is the endpoint of one rank. It implements transport.Transport. Send copies a message
// into the buffer of the receive that waits for it. If no receive waits, Send copies into the
// receiver's mailbox as soon as the mailbox has room.
type Transport struct {
	self int
	all  []*Transport                        // by rank
	box  *mailbox.Box                        // receives the messages of other ranks
	left atomic.Pointer[transport.PeerError] // why others cannot reach this rank any more; nil before Close or Kill
}

// New returns the endpoints of ranks 0..n-1 of one epoch. The caller closes all of them. New starts
// no goroutine: a message is copied in the goroutine of its sender.
func New(n int) []*Transport {
	all := make([]*Transport, n)
	for i := range all {
		t := &Transport{self: i, all: all}
		t.box = mailbox.New(i, n, mailbox.DefaultLimit, t.Revoke)
		all[i] = t
	}
	return all
}

// Send implements transport.Transport.
func (t *Transport) Send(ctx context.Context, to int, e transport.Envelope, buf []byte) error {
	if err := t.box.Check("send", to); err != nil {
		return err
	}
	if err := t.send(ctx, t.all[to], e, buf); err != nil {
		t.Revoke(err)
		return t.box.Cause()
	}
	return nil
}

// send copies buf into the mailbox of the endpoint to. The caller revokes with the error. If the
// mailbox of to has failed, the error is the cause that to would send to this rank. send checks the
// mailbox of t twice: at the beginning, because a revoked rank sends nothing, and again after the
// wait for room, because the mailbox of t may have failed meanwhile.
func (t *Transport) send(ctx context.Context, to *Transport, e transport.Envelope, buf []byte) error {
	if cause := t.box.Cause(); cause != nil {
		return cause
	}
	if err := to.box.WaitRoom(t.self, ctx.Done(), t.box.Failed()); err != nil {
		return to.gone()
	}
	if ctx.Err() != nil {
		return mailbox.Cancelled(ctx, t.self, fmt.Sprintf("send to rank %d", to.self))
	}
	if cause := t.box.Cause(); cause != nil {
		return cause
	}
	m, err := to.box.Accept(t.self, e, len(buf))
	if err != nil {
		return to.gone()
	}
	copy(m.Buf, buf)
	m.Done()
	return nil
}

// gone returns the error that other ranks get when the mailbox of t has failed.
func (t *Transport) gone() error {
	if left := t.left.Load(); left != nil {
		return left
	}
	return transport.DecodeCause(t.self, transport.EncodeCause(t.self, t.box.Cause()))
}

// Recv implements transport.Transport.
func (t *Transport) Recv(ctx context.Context, from int, e transport.Envelope, buf []byte) error {
	return t.box.Recv(ctx, from, e, buf)
}

// Post implements transport.Transport.
func (t *Transport) Post(from int, e transport.Envelope, buf []byte) transport.Posted {
	return t.box.Post(from, e, buf)
}

// Peek implements transport.Transport.
func (t *Transport) Peek(from []int, stop <-chan struct{}, matches func(from int, e transport.Envelope) bool) (int, transport.Envelope, error) {
	return t.box.Peek(from, stop, matches)
}

// Signal implements transport.Transport. A signal longer than transport.MaxSignal is lost.
func (t *Transport) Signal(to int, msg []byte) {
	if t.box.Check("signal", to) == nil && t.box.Cause() == nil && len(msg) <= transport.MaxSignal {
		t.all[to].box.Signal(t.self, msg, false)
	}
}

// Signals implements transport.Transport.
func (t *Transport) Signals() <-chan transport.Signal { return t.box.Signals() }

// Awaits implements transport.Matcher.
func (t *Transport) Awaits(from int, e transport.Envelope) bool { return t.box.Awaits(from, e) }

// Full implements transport.Matcher.
func (t *Transport) Full(from int) bool { return t.box.Full(from) }

// Revoke implements transport.Transport. When it returns the mailboxes of all other ranks have
// failed.
func (t *Transport) Revoke(cause error) {
	if cause == nil {
		cause = transport.ErrRevoked
	}
	if !t.box.Fail(cause) {
		return
	}
	told := transport.EncodeCause(t.self, cause)
	for _, other := range t.all {
		other.box.Fail(transport.DecodeCause(t.self, told))
	}
}

// Close implements transport.Transport.
func (t *Transport) Close() error {
	why := &transport.PeerError{Rank: t.self, Cause: "closed"}
	if !t.leave(why, transport.ErrClosed) {
		return nil
	}
	for _, other := range t.all {
		other.box.End(t.self, why)
	}
	return nil
}

// Kill ends this rank as a crash would: its own calls fail with ErrClosed, and every other rank is
// revoked with a *transport.PeerError that names this rank.
func (t *Transport) Kill() {
	why := &transport.PeerError{Rank: t.self, Cause: "killed"}
	if !t.leave(why, fmt.Errorf("rank %d was killed: %w", t.self, transport.ErrClosed)) {
		return
	}
	for _, other := range t.all {
		other.box.Fail(why)
	}
}

// leave makes the mailbox fail with cause. It returns false if the mailbox had failed before. It
// sets t.left to why first, so that a rank that finds the mailbox failed also finds the reason.
func (t *Transport) leave(why *transport.PeerError, cause error) bool {
	t.left.CompareAndSwap(nil, why)
	return t.box.Fail(cause)
}
