package mailbox

import (
	"errors"

	"github.com/elrun/elrun/collective/transport"
)

// Message is a message that is arriving in the box, or that the box holds. The goroutine that
// accepted the message fills Buf and then calls Done or Abort, once. After that it does not use the
// message. Messages are pooled.
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
	// order is the number of the message among those of its source that no receive had asked for.
	order uint64
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

// errAborted is reported to a receive whose message will not be completed.
var errAborted = errors.New("message aborted")
