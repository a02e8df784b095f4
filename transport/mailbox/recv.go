package mailbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/elrun/elrun/collective/transport"
)

// errAborted tells a receive that its message will not be completed.
var errAborted = errors.New("message aborted")

// receive is a receive under way. Whoever takes it out of its slot tells it exactly once
// how it ended; after that, or after its own withdrawal, it belongs to Wait alone.
type receive struct {
	box     *Box
	from    int
	env     transport.Envelope
	buf     []byte
	err     error      // why it was in vain from the beginning
	ready   chan error // of one element, so that telling never blocks
	message *Message   // if set, buf has to be copied from it
	arrived bool       // message is complete
	posted  bool       // in a slot
	next    *receive
}

// Recv fills buf with the next message from rank from under e's Comm and Seq. Every
// error revokes, but for an ErrArgument; the result is then the box's first cause.
//
// When Recv returns nobody writes to buf any more. A Recv ended by its ctx or a failure
// while its message comes in waits for the message's Done or Abort.
func (b *Box) Recv(ctx context.Context, from int, e transport.Envelope, buf []byte) error {
	return b.Post(from, e, buf).Wait(ctx)
}

// Post begins a Recv and does not wait.
func (b *Box) Post(from int, e transport.Envelope, buf []byte) transport.Posted {
	r := b.receives.Get().(*receive)
	r.box, r.from, r.env, r.buf = b, from, e, buf
	if r.err = b.Check("receive", from); r.err == nil {
		r.err = b.Cause()
	}
	if r.err == nil {
		r.ask()
	}
	return r
}

// ask looks whether the message is there, and says where it is to go if not.
func (r *receive) ask() {
	s := &r.box.sources[r.from]
	arrived, wake, err := s.ask(r)
	if wake {
		s.wake()
	}
	r.arrived = arrived
	if err != nil {
		r.box.revoke(err)
		r.err = r.box.Cause()
	}
}

// Wait implements transport.Posted.
func (r *receive) Wait(ctx context.Context) error {
	b, err := r.box, r.err
	if err == nil {
		err = r.finish(ctx)
	}
	r.buf, r.message, r.err = nil, nil, nil
	b.receives.Put(r)
	return err
}

// finish waits for the message. It was told or withdrawn when it returns.
func (r *receive) finish(ctx context.Context) error {
	b := r.box
	var err error
	if !r.arrived {
		err = b.wait(ctx, r.from, r)
	}
	if r.message != nil { // not filled in place
		if err == nil {
			copy(r.buf, r.message.Buf)
		}
		b.messages.put(r.message)
	}
	if err == nil {
		return nil
	}
	b.revoke(err)
	return b.Cause()
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
