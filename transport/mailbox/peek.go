package mailbox

import (
	"slices"

	"github.com/elrun/elrun/collective/transport"
)

// Peek waits until the box holds a message that matches accepts, and returns its sender and its
// envelope. The message stays in the box. See transport.Transport.Peek.
func (b *Box) Peek(from []int, stop <-chan struct{}, matches func(from int, e transport.Envelope) bool) (rank int, e transport.Envelope, err error) {
	for _, rank := range from {
		if err := b.Check("peek", rank); err != nil {
			return -1, e, err
		}
	}
	wakeup := make(chan struct{}, 1)
	b.addPeeker(from, wakeup)
	defer b.removePeeker(from, wakeup)
	for {
		if cause := b.Cause(); cause != nil {
			return -1, e, cause
		}
		rank, e, err = b.find(from, matches)
		if err != nil {
			b.revoke(err)
			return -1, e, b.Cause()
		}
		if rank >= 0 {
			return rank, e, nil
		}
		select {
		case <-wakeup:
		case <-stop:
			return -1, e, nil
		case <-b.failed:
		}
	}
}

// find returns the first message of some sources that matches accepts; rank is -1 if there is none.
// The sources take turns in being the first, so that a source with many messages does not keep the
// others waiting. The error says that no message can come any more.
func (b *Box) find(from []int, matches func(from int, e transport.Envelope) bool) (rank int, e transport.Envelope, err error) {
	first := int(b.found.Load() % uint32(len(from)))
	open := false
	for i := range from {
		rank := from[(first+i)%len(from)]
		s := &b.sources[rank]
		e, ok, ended := s.find(matches)
		if ok {
			b.found.Add(1)
			return rank, e, nil
		}
		// The rank of the box itself never ends. If it is one of several sources, it counts as ended
		// together with the others: nearly always a message of another rank is awaited.
		if ended == nil && (rank != b.self || len(from) == 1) {
			open = true
		}
		if ended != nil {
			err = ended
		}
	}
	if open {
		err = nil
	}
	return -1, e, err
}

// addPeeker registers a channel that gets a token when a message of one of the sources arrives or
// when a source ends. While a goroutine peeks, readers go on, as for a posted receive.
func (b *Box) addPeeker(from []int, wakeup chan struct{}) {
	for _, rank := range from {
		s := &b.sources[rank]
		s.mu.Lock()
		s.waiting++
		s.peekers = append(s.peekers, wakeup)
		wake := s.wakeLocked()
		s.mu.Unlock()
		if wake {
			s.wake()
		}
	}
}

// removePeeker undoes addPeeker.
func (b *Box) removePeeker(from []int, wakeup chan struct{}) {
	for _, rank := range from {
		s := &b.sources[rank]
		s.mu.Lock()
		s.waiting--
		s.peekers = slices.DeleteFunc(s.peekers, func(c chan struct{}) bool { return c == wakeup })
		s.mu.Unlock()
	}
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
