package mailbox

import (
	"slices"

	"github.com/elrun/elrun/collective/transport"
)

// WaitRoom waits until the next message of rank from may be accepted (backpressure). There is no
// room while the box holds more than the limit from that rank and no receive waits for a message
// from that rank. Then the reader should leave further messages in the stream. WaitRoom returns the
// cause of the box if the box fails. It also returns nil when stop1 or stop2 is closed; the caller
// checks these channels itself. Each of the two may be nil.
func (b *Box) WaitRoom(from int, stop1, stop2 <-chan struct{}) error {
	s := &b.sources[from]
	for {
		open, pass := s.addSleeper()
		if pass {
			s.wake()
		}
		if open {
			return b.Cause()
		}
		stop := false
		select {
		case <-s.wakeups:
		case <-b.failed:
			stop = true
		case <-stop1:
			stop = true
		case <-stop2:
			stop = true
		}
		s.removeSleeper()
		if stop {
			return b.Cause()
		}
	}
}

// Accept returns a message of size bytes from rank from under e, which the caller must fill. It
// never blocks. If the box has failed it returns the cause. If the waiting receive has another call
// or length, Accept revokes and returns the cause.
//
// Messages under one key are received in the order of Accept.
func (b *Box) Accept(from int, e transport.Envelope, size int) (*Message, error) {
	if cause := b.Cause(); cause != nil {
		return nil, cause
	}
	s := &b.sources[from]
	if r := s.popReceive(keyOf(e)); r != nil {
		return b.acceptDirect(from, e, size, r)
	}
	m := b.messages.get(size)
	m.box, m.from, m.env = b, from, e
	r := s.deliver(m)
	if r == nil {
		return m, nil
	}
	// The receive was posted after popReceive, while memory was allocated.
	b.messages.put(m)
	return b.acceptDirect(from, e, size, r)
}

// acceptDirect returns a message whose Buf is the buffer of r. The caller has taken r out
// of its slot.
func (b *Box) acceptDirect(from int, e transport.Envelope, size int, r *receive) (*Message, error) {
	if err := b.sources[from].compare(r, e, size); err != nil {
		b.revoke(err)
		r.ready <- err
		return nil, b.Cause()
	}
	m := b.messages.get(0)
	m.box, m.from, m.env = b, from, e
	m.Buf, m.waiter, m.direct = r.buf, r, true
	return m, nil
}

// LiftLimit lifts the limit of rank from, so that a paused reader reads on to the end of a
// stream that is known to end.
func (b *Box) LiftLimit(from int) {
	if b.sources[from].liftLimit() {
		b.sources[from].wake()
	}
}

// End reports that no further message of rank from will come. Receives of messages that
// came before still succeed. Every other pending or later receive from that rank revokes
// with err.
func (b *Box) End(from int, err error) {
	if b.shared != nil {
		if local := slices.Index(b.shared.Ranks, from); local >= 0 {
			b.shared.Memory.Gone(local)
		}
	}
	for r := b.sources[from].end(err); r != nil; {
		next := r.next // read before the send below, after which r belongs to its receiver
		r.next = nil
		r.ready <- err
		r = next
	}
}
