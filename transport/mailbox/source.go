package mailbox

import (
	"fmt"
	"sync"

	"github.com/elrun/elrun/collective/transport"
)

// key is what messages are matched by, besides their source.
type key struct {
	comm uint64
	seq  uint32
}

// keyOf drops the Call, which is compared and not matched.
func keyOf(e transport.Envelope) key { return key{e.Comm, e.Seq} }

// slot is what waits under one key: messages that nobody has asked for, or receives
// for which nothing has come, never both. Empty slots are not kept.
type slot struct {
	first, last *Message
	receives    *receive // a list by next; the contract makes it one long as a rule
}

// overhead is what a held message costs besides its payload, so that a flood of empty
// messages meets the limit too.
const overhead = 256

// source is what is known of one rank. Its methods only change state under mu; those
// that return *receive hand it over to be told, and those that return a bool say that
// the caller should wake a paused reader, in both cases after mu was released.
type source struct {
	self, rank int // of the box, of the source
	limit      int
	room       chan struct{} // holds a token when a sleeper should look again

	mu        sync.Mutex
	slots     map[key]slot
	held      int // bytes of messages that nobody has asked for
	waiting   int // receives for which nothing has come
	sleepers  int // goroutines in WaitRoom
	unbounded bool
	ended     error
}

// openLocked is the rule of back-pressure. While a receive waits for a message that
// has not come, that message may be behind others, so reading must go on; else a
// source may not fill the memory of a rank that does not listen to it.
func (s *source) openLocked() bool {
	return s.unbounded || s.waiting > 0 || s.held <= s.limit
}

// wakeLocked reports whether a sleeper should be woken.
func (s *source) wakeLocked() bool { return s.sleepers > 0 && s.openLocked() }

// wake lets one sleeper look again; it wakes the next.
func (s *source) wake() {
	select {
	case s.room <- struct{}{}:
	default:
	}
}

// sleep registers the caller as a sleeper unless there is room. Where there is, pass
// says that others sleep and should be woken, too.
func (s *source) sleep() (open, pass bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.openLocked() {
		return true, s.sleepers > 0
	}
	s.sleepers++
	return false, false
}

// awake undoes sleep.
func (s *source) awake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sleepers--
}

// unbound lifts the limit for good.
func (s *source) unbound() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unbounded = true
	return s.wakeLocked()
}

// ask matches r with the first message under its key, and reports whether that is complete;
// or it posts r.
func (s *source) ask(r *receive) (arrived, wake bool, err error) {
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

// compare returns a *transport.MismatchError unless r asks for what was sent.
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

// postLocked appends r to the receives under k. The list is walked to its end, which the
// contract makes its beginning.
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

// popLocked removes the first message under k, which stops counting against the limit:
// its receive exists, so it will not stay.
func (s *source) popLocked(k key, l slot) {
	m := l.first
	s.held -= len(m.Buf) + overhead
	l.first, m.next = m.next, nil
	if l.first == nil {
		l.last = nil
	}
	s.storeLocked(k, l)
}

// storeLocked writes back a slot, or deletes it when it is empty: keys are hardly ever
// used again.
func (s *source) storeLocked(k key, l slot) {
	if l == (slot{}) {
		delete(s.slots, k)
		return
	}
	s.slots[k] = l
}

// take removes and returns the first receive posted under k, or nil.
func (s *source) take(k key) *receive {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeLocked(k)
}

// takeLocked is take for callers that hold mu.
func (s *source) takeLocked(k key) *receive {
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

// offer gives m to the first receive posted under its key, which it returns, or
// holds m until one asks.
func (s *source) offer(m *Message) *receive {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := keyOf(m.env)
	if r := s.takeLocked(k); r != nil {
		return r
	}
	l := s.slots[k]
	if l.last == nil {
		l.first = m
	} else {
		l.last.next = m
	}
	l.last = m
	s.held += len(m.Buf) + overhead
	s.slots[k] = l
	return nil
}

// complete marks m as arrived and returns the receive that waits for it, if any.
func (s *source) complete(m *Message) *receive {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.arrived = true
	return m.waiter
}

// drop removes m, of which no more will come, and returns the receive that waits for
// it, if any.
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
	s.held -= len(m.Buf) + overhead
	s.storeLocked(k, l)
	return nil
}

// withdraw removes r if nothing has come for it yet; otherwise it reports false, and
// r will be told.
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

// end makes err the answer to receives without a message, and returns those posted
// as a list by next.
func (s *source) end(err error) (all *receive) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return nil
	}
	s.ended = err
	for k := range s.slots {
		for r := s.takeLocked(k); r != nil; r = s.takeLocked(k) {
			r.next, all = all, r
		}
	}
	return all
}
