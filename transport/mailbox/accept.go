package mailbox

import "github.com/elrun/elrun/collective/transport"

// Message is a message that is arriving in the box, or that the box holds. The goroutine
// that accepted it fills Buf and then calls Done or Abort, once, and does not use the
// message afterwards. Messages are pooled.
type Message struct {
	// Buf is the destination of the payload. Its length is the size given to Accept. It
	// belongs to the accepting goroutine until Done or Abort.
	Buf []byte

	box    *Box
	from   int
	env    transport.Envelope
	store  []byte // pooled memory under Buf, nil for none
	direct bool   // Buf is the buffer of the waiting receive
	// waiter is the receive that has claimed the message, or nil. The source's mu guards it unless
	// the message is direct.
	waiter  *receive
	arrived bool // Done was called; guarded by the source's mu
	// next is the next message in the same slot.
	next *Message
}

// WaitRoom waits until the next message of rank from may be accepted (backpressure). There
// is no room while the box holds more than the limit of that rank and no receive waits for
// a message of it; the reader should then leave further messages in the stream. WaitRoom
// returns the cause of the box if the box fails. It returns nil also when stop1 or stop2 is
// closed, either of which may be nil; the caller then knows why to stop.
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

// Accept returns a message of size bytes from rank from under e, which the caller must
// fill. It never blocks. If the box has failed it returns the cause. If the waiting receive
// asks for another call or length it revokes and returns the cause.
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

// Done reports that Buf is filled, and completes the receive if there is one.
func (m *Message) Done() {
	b := m.box
	var r *receive
	if m.direct {
		r = m.waiter
		b.messages.put(m)
	} else {
		// After complete, m may belong to another goroutine.
		r = b.sources[m.from].complete(m)
	}
	if r != nil {
		r.ready <- nil
	}
}

// Abort reports that Buf will not be filled. The caller must let the box Fail soon: a
// receive that waits for the message returns only then.
func (m *Message) Abort() {
	b := m.box
	var r *receive
	if m.direct {
		r = m.waiter
	} else {
		r = b.sources[m.from].drop(m)
	}
	if r == nil || m.direct {
		b.messages.put(m) // otherwise the receive that claimed m returns it to the pool
	}
	if r != nil {
		r.ready <- errAborted
	}
}
