package mailbox

import "github.com/elrun/elrun/collective/transport"

// Message is a message on its way into the box. Who accepted it fills Buf and then
// calls Done or Abort, once, and does not touch it afterwards.
type Message struct {
	// Buf is where the payload goes; it has the length given to Accept.
	Buf []byte

	box     *Box
	from    int
	env     transport.Envelope
	store   []byte   // pooled memory under Buf, nil if there is none
	direct  bool     // Buf is the waiter's
	waiter  *receive // who asked for it; guarded by the source's mu unless direct
	arrived bool     // guarded by the source's mu
	next    *Message
}

// WaitRoom waits until the next message of rank from may be accepted: while more than
// the limit is held from it, and no Recv waits for something of it that has not come,
// its messages should stay where they are. It returns the box's cause if that fails,
// and nil also when a or b, either of which may be nil, is closed: why to stop is then
// the caller's knowledge.
func (b *Box) WaitRoom(from int, stop1, stop2 <-chan struct{}) error {
	s := &b.sources[from]
	for {
		open, pass := s.sleep()
		if pass {
			s.wake()
		}
		if open {
			return b.Cause()
		}
		stop := false
		select {
		case <-s.room:
		case <-b.failed:
			stop = true
		case <-stop1:
			stop = true
		case <-stop2:
			stop = true
		}
		s.awake()
		if stop {
			return b.Cause()
		}
	}
}

// Accept takes in the next message of rank from: of size bytes, sent under e. It never
// blocks. It fails with the box's cause, and after a revocation of its own when the
// message is not what the waiting receive asks for.
//
// Messages under one key are received in the order in which they were accepted.
func (b *Box) Accept(from int, e transport.Envelope, size int) (*Message, error) {
	if cause := b.Cause(); cause != nil {
		return nil, cause
	}
	s := &b.sources[from]
	if r := s.take(keyOf(e)); r != nil {
		return b.acceptDirect(from, e, size, r)
	}
	m := b.messages.get(size)
	m.box, m.from, m.env = b, from, e
	r := s.offer(m)
	if r == nil {
		return m, nil
	}
	// A receive was posted while memory was found.
	b.messages.put(m)
	return b.acceptDirect(from, e, size, r)
}

// acceptDirect lets the message be filled into r, which was taken out of its slot.
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

// Done says that Buf is filled.
func (m *Message) Done() {
	b := m.box
	var r *receive
	if m.direct {
		r = m.waiter
		b.messages.put(m)
	} else {
		// From here on m may be another goroutine's.
		r = b.sources[m.from].complete(m)
	}
	if r != nil {
		r.ready <- nil
	}
}

// Abort says that Buf will not be filled. The caller must let the box Fail soon, as
// the receive that waits for the message, if one does, returns then.
func (m *Message) Abort() {
	b := m.box
	var r *receive
	if m.direct {
		r = m.waiter
	} else {
		r = b.sources[m.from].drop(m)
	}
	if r == nil || m.direct {
		b.messages.put(m) // a receive that claimed m puts it back itself
	}
	if r != nil {
		r.ready <- errAborted
	}
}
