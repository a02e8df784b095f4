package simnet

import "time"

// reorderTime is a lower limit for the maximum additional delay of a control message that may be
// overtaken.
const reorderTime = 10 * time.Millisecond

// fate is the effect of Link on a control message. Other frames on Control, and frames of other
// streams, have no fate.
type fate struct {
	twice bool
	loose bool          // later messages may overtake it
	extra time.Duration // additional delay
}

// draw draws the fate of the control message that is written next. It returns true if the message is lost.
func (s *stream) draw() (lost bool) {
	l := s.out.link
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	k := l.rules[Control].link
	s.next = fate{}
	if l.chanceLocked(k.Reorder) {
		s.next = fate{loose: true, extra: l.drawLocked(max(k.Delay+k.Lag, reorderTime))}
	}
	lost = l.chanceLocked(k.Loss)
	s.next.twice = l.chanceLocked(k.Duplicate)
	return lost
}

// takeFate returns the fate of the present write.
func (s *stream) takeFate() fate {
	s.node.net.mu.Lock()
	defer s.node.net.mu.Unlock()
	f := s.next
	s.next = fate{}
	return f
}
