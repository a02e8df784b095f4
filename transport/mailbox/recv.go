package mailbox

import (
	"context"

	"github.com/elrun/elrun/collective/transport"
)

// receive is a receive in progress. A goroutine that takes the receive out of its slot reports the
// end of the receive exactly once, on ready. After that report, or after a successful withdrawal,
// only Wait may use the receive. Receives are pooled. A receive is in exactly one place: in a slot,
// filled by the goroutine that has taken it out, or ended.
type receive struct {
	box  *Box
	from int
	env  transport.Envelope
	buf  []byte
	// err is the error of a receive that failed before it was posted.
	err error
	// ready reports the end of the receive. It has room for one value, so that the report never
	// blocks.
	ready chan error
	// message, if set, is the message from which the payload is copied into buf.
	message *Message
	arrived bool // message is complete
	posted  bool // in a slot; guarded by the source's mu
	// next is the next receive in the same slot, or in the list that source.end returns.
	next *receive
}

// match looks for the message of r, and posts r if there is none. An error revokes.
func (r *receive) match() {
	s := &r.box.sources[r.from]
	arrived, wake, err := s.match(r)
	// The goroutine that reads from the sender waits for room, or for a posted receive. That
	// goroutine is woken here, where the lock of the source is not held.
	if wake {
		s.wake()
	}
	r.arrived = arrived
	if err != nil {
		r.box.revoke(err)
		r.err = r.box.Cause()
	}
}

// Wait implements transport.Posted. It returns r to the pool.
func (r *receive) Wait(ctx context.Context) error {
	b, err := r.box, r.err
	if err == nil {
		err = r.finish(ctx)
	}
	r.buf, r.message, r.err = nil, nil, nil
	// r.ready is empty again: each report was received, by wait.
	b.receives.Put(r)
	return err
}

// finish waits for the message and copies it into buf if it was not received in place. When
// it returns, no other goroutine refers to r.
func (r *receive) finish(ctx context.Context) error {
	b := r.box
	var err error
	if !r.arrived {
		err = b.wait(ctx, r.from, r)
	}
	// The message came before the receive, so it was buffered.
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
