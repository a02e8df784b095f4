package mailbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/elrun/elrun/collective"
)

// errAborted tells a receive that its message will not be completed.
var errAborted = errors.New("message aborted")

// receive is a call of Recv. Whoever takes it out of its slot tells it exactly once
// how it ended; after that, or after its own withdrawal, it belongs to Recv alone.
type receive struct {
	env     collective.Envelope
	buf     []byte
	ready   chan error // of one element, so that telling never blocks
	message *Message   // if set, buf has to be copied from it
	posted  bool       // in a slot
	next    *receive
}

// Recv fills buf with the next message from rank from under e's Comm and Seq. Every
// error revokes, but for an ErrArgument; the result is then the box's first cause.
//
// When Recv returns nobody writes to buf any more. A Recv ended by its ctx or a failure
// while its message comes in waits for the message's Done or Abort.
func (b *Box) Recv(ctx context.Context, from int, e collective.Envelope, buf []byte) error {
	if err := b.Check("receive", from); err != nil {
		return err
	}
	if cause := b.Cause(); cause != nil {
		return cause
	}
	r := b.receives.Get().(*receive)
	r.env, r.buf = e, buf
	err := b.receive(ctx, from, r)
	r.buf, r.message = nil, nil
	b.receives.Put(r)
	if err == nil {
		return nil
	}
	b.revoke(err)
	return b.Cause()
}

// receive is Recv without its bookkeeping. r is told, withdrawn or was never posted when
// it returns.
func (b *Box) receive(ctx context.Context, from int, r *receive) error {
	s := &b.sources[from]
	m, arrived, wake, err := s.ask(r)
	if wake {
		s.wake()
	}
	if err == nil && !arrived {
		err = b.wait(ctx, from, r)
	}
	if r.message == nil {
		return err // never matched, or filled in place
	}
	if err == nil {
		copy(r.buf, m.Buf)
	}
	b.messages.put(r.message)
	return err
}

// wait waits until r was told or withdrawn.
func (b *Box) wait(ctx context.Context, from int, r *receive) error {
	select {
	case err := <-r.ready:
		if err != errAborted {
			return err
		}
		// Who broke off knows best why, and may need a moment to find out.
		select {
		case <-b.failed:
			return b.Cause()
		case <-ctx.Done():
			return Cancelled(ctx, b.self, fmt.Sprintf("receive from rank %d", from))
		}
	case <-ctx.Done():
		b.revoke(Cancelled(ctx, b.self, fmt.Sprintf("receive from rank %d", from)))
	case <-b.failed:
	}
	if !b.sources[from].withdraw(r) {
		<-r.ready // until then the buffer may be written to
	}
	return b.Cause()
}
