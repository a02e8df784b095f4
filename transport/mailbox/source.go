package mailbox

import (
	"fmt"
	"sync"

	"github.com/elrun/elrun/collective/transport"
)

// key identifies the messages that a receive matches, besides their source.
type key struct {
	// comm and seq identify the messages of one call: the communicator, and the number of the call
	// in it.
	comm uint64
	seq  uint32
}

// keyOf returns the key of an envelope. The Call is not part of the key: it is compared
// after the match.
func keyOf(e transport.Envelope) key { return key{e.Comm, e.Seq} }

// slot holds the unmatched entries of one key: messages without a receive, or receives
// without a message, never both. Empty slots are deleted.
type slot struct {
	first, last *Message // a list by next, in the order of Accept
	// receives is a list by next. By the contract of transport.Transport it rarely has more than
	// one element.
	receives *receive
}

// overhead is the number of bytes by which a held message counts in addition to its payload. So the
// limit also stops a flood of empty messages.
const overhead = 256

// source holds the unmatched messages and receives of one source rank, and applies backpressure to
// its reader. The methods only change state, under mu. A caller that gets a *receive must report
// the end of that receive on its channel ready. A caller that gets true as wake must wake a paused
// reader. Both happen after the method has released mu.
type source struct {
	self, rank int           // rank of the box, rank of the source
	limit      int           // bytes of held messages
	wakeups    chan struct{} // holds a token when a sleeper should check for room again

	// mu guards the fields below.
	mu        sync.Mutex
	slots     map[key]slot
	heldBytes int             // bytes of messages without a receive, with their overhead
	waiting   int             // receives without a message, and goroutines in Peek
	sleepers  int             // goroutines that wait in WaitRoom
	unbounded bool            // no limit
	ended     error           // answers later receives; nil while messages may come
	arrivals  uint64          // number of messages so far that no receive had asked for
	peekers   []chan struct{} // of the goroutines in Peek
}

// openLocked reports whether the reader may accept a further message. This is the rule of
// backpressure: a source must not fill the memory of a rank that does not receive from it.
// But while a receive waits for a message that has not come, that message may be queued
// behind others (head-of-line blocking), so the reader must go on.
func (s *source) openLocked() bool {
	return s.unbounded || s.waiting > 0 || s.heldBytes <= s.limit
}

// awaits reports whether a receive is posted under k.
func (s *source) awaits(k key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots[k].receives != nil
}

// isFull reports whether the reader may not accept a further message.
func (s *source) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.openLocked()
}

// wakeLocked reports whether a sleeper should be woken.
func (s *source) wakeLocked() bool { return s.sleepers > 0 && s.openLocked() }

// wake lets one sleeper check for room again; that sleeper wakes the next one.
func (s *source) wake() {
	select {
	case s.wakeups <- struct{}{}:
	default:
	}
}

// addSleeper registers the caller as a sleeper unless there is room. If there is room, pass
// reports that other goroutines sleep and should be woken, too.
func (s *source) addSleeper() (open, pass bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.openLocked() {
		return true, s.sleepers > 0
	}
	s.sleepers++
	return false, false
}

// removeSleeper removes the caller from the sleepers.
func (s *source) removeSleeper() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sleepers--
}

// liftLimit lifts the limit for good, and reports whether a sleeper should be woken.
func (s *source) liftLimit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unbounded = true
	return s.wakeLocked()
}

// match matches r with the first message under its key, and returns arrived if that message
// is complete. Without a message it posts r. The error is a mismatch, or the end of the
// source.
func (s *source) match(r *receive) (arrived, wake bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := keyOf(r.env)
	l := s.slots[k]
	m := l.first
	if m == nil && s.ended != nil {
		return false, false, s.ended
	}
	if m == nil {
		s.postLocked(k, l, r)
		return false, s.wakeLocked(), nil
	}
	if err := s.compare(r, m.env, len(m.Buf)); err != nil {
		return false, false, err
	}
	s.popLocked(k, l)
	r.message = m
	if !m.arrived {
		m.waiter = r
	}
	return m.arrived, s.wakeLocked(), nil
}

// compare returns a *transport.MismatchError unless a message has the call and the length of r.
func (s *source) compare(r *receive, sent transport.Envelope, size int) error {
	if r.env.Call == sent.Call && len(r.buf) == size {
		return nil
	}
	err := &transport.MismatchError{RankA: s.self, RankB: s.rank, A: r.env.Call, B: sent.Call}
	if len(r.buf) != size {
		err.Detail = fmt.Sprintf("rank %d sent %d bytes, rank %d expected %d", s.rank, size, s.self, len(r.buf))
	}
	return err
}

// postLocked appends r to the receives under k. It walks the whole list, which is nearly
// always empty.
func (s *source) postLocked(k key, l slot, r *receive) {
	s.waiting++
	r.posted = true
	at := &l.receives
	for *at != nil {
		at = &(*at).next
	}
	*at = r
	s.slots[k] = l
}

// popLocked removes the first message under k. The message no longer counts against the
// limit: its receive exists, so the message will be consumed soon.
func (s *source) popLocked(k key, l slot) {
	m := l.first
	s.heldBytes -= len(m.Buf) + overhead
	l.first, m.next = m.next, nil
	if l.first == nil {
		l.last = nil
	}
	s.storeLocked(k, l)
}

// storeLocked writes back a slot, or deletes it if it is empty: keys are hardly ever used
// again.
func (s *source) storeLocked(k key, l slot) {
	if l == (slot{}) {
		delete(s.slots, k)
		return
	}
	s.slots[k] = l
}

// popReceive removes and returns the first receive posted under k, or returns nil.
func (s *source) popReceive(k key) *receive {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.popReceiveLocked(k)
}

// popReceiveLocked is popReceive for callers that hold mu.
func (s *source) popReceiveLocked(k key) *receive {
	l := s.slots[k]
	r := l.receives
	if r == nil {
		return nil
	}
	l.receives, r.next = r.next, nil
	r.posted = false
	s.waiting--
	s.storeLocked(k, l)
	return r
}

// deliver returns the first receive posted under the key of m, which it removes from its
// slot. If there is none it holds m until a receive asks for it, and returns nil.
func (s *source) deliver(m *Message) *receive {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := keyOf(m.env)
	if r := s.popReceiveLocked(k); r != nil {
		return r
	}
	l := s.slots[k]
	if l.last == nil {
		l.first = m
	} else {
		l.last.next = m
	}
	l.last = m
	s.heldBytes += len(m.Buf) + overhead
	s.slots[k] = l
	s.arrivals++
	m.order = s.arrivals
	s.wakePeekersLocked()
	return nil
}

// complete marks m as arrived and returns the receive that waits for it, or nil.
func (s *source) complete(m *Message) *receive {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.arrived = true
	return m.waiter
}

// drop removes m, which will not be completed, and returns the receive that waits for it,
// or nil.
func (s *source) drop(m *Message) *receive {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.waiter != nil {
		return m.waiter
	}
	k := keyOf(m.env)
	l := s.slots[k]
	var before *Message
	for at := l.first; at != m; at = at.next {
		before = at
	}
	if before == nil {
		l.first = m.next
	} else {
		before.next = m.next
	}
	if l.last == m {
		l.last = before
	}
	s.heldBytes -= len(m.Buf) + overhead
	s.storeLocked(k, l)
	return nil
}

// withdraw removes r from its slot. It returns false if a message has been matched with r
// already; then the end of that message will be reported to r.
func (s *source) withdraw(r *receive) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !r.posted {
		return false
	}
	k := keyOf(r.env)
	l := s.slots[k]
	at := &l.receives
	for *at != r {
		at = &(*at).next
	}
	*at, r.next = r.next, nil
	r.posted = false
	s.waiting--
	s.storeLocked(k, l)
	return true
}

// end makes err the result of later receives without a message. It returns the receives
// posted so far as a list by next. A second call does nothing.
func (s *source) end(err error) (all *receive) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return nil
	}
	s.ended = err
	s.wakePeekersLocked()
	for k := range s.slots {
		for r := s.popReceiveLocked(k); r != nil; r = s.popReceiveLocked(k) {
			r.next, all = all, r
		}
	}
	return all
}

// find returns the envelope of the first message that matches accepts, in the order of arrival.
// Without such a message, ended is the end of the source.
func (s *source) find(matches func(from int, e transport.Envelope) bool) (e transport.Envelope, ok bool, ended error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first *Message
	for _, l := range s.slots {
		if m := l.first; m != nil && (first == nil || m.order < first.order) && matches(s.rank, m.env) {
			first = m
		}
	}
	if first == nil {
		return e, false, s.ended
	}
	return first.env, true, nil
}

// wakePeekersLocked gives a token to each goroutine that peeks.
func (s *source) wakePeekersLocked() {
	for _, wakeup := range s.peekers {
		select {
		case wakeup <- struct{}{}:
		default:
		}
	}
}
