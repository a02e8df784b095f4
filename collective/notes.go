package collective

import (
	"github.com/elrun/elrun/collective/internal/stall"
	"github.com/elrun/elrun/collective/transport"
)

// MaxNote is the greatest length of a note, in bytes.
const MaxNote = transport.MaxSignal - 1

// Notes carries short messages between the ranks of a communicator, outside all calls: a rank is told
// at once, also while its program computes or is in a call. A note may be lost, and may come before
// messages that were sent earlier, so a program that needs an answer asks again. All communicators
// over one transport have the same notes. A Notes is safe for concurrent use. The zero value sends and
// receives nothing.
type Notes struct{ c *Comm }

// Send sends a note of up to MaxNote bytes to a rank, and does not wait. A longer note is lost. The
// slice may be used again at once.
func (n Notes) Send(to int, note []byte) {
	if n.c.isValid() {
		n.c.t.Signal(n.c.transportRank(to), append([]byte{byte(stall.Note)}, note...))
	}
}

// Handle sets the function that gets the notes of other ranks from now on, in place of an earlier
// one; nil drops them. The function is called by one goroutine, must not wait, and may send. It may
// keep the note, which comes from another process and may have any content. It is not called after
// Close.
func (n Notes) Handle(f func(from int, note []byte)) {
	if !n.c.isValid() {
		return
	}
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	n.c.onNote = nil
	if f != nil {
		n.c.onNote = func(from int, note []byte) {
			if rank := n.c.commRank(from); rank >= 0 {
				f(rank, note)
			}
		}
	}
}

// noted passes a note of a rank of the transport to the program.
func (ep *endpoint) noted(from int, note []byte) {
	ep.mu.Lock()
	f := ep.onNote
	ep.mu.Unlock()
	if f != nil {
		f(from, note)
	}
}
