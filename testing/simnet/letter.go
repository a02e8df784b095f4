package simnet

import "time"

// reorderTime is the least by which a control message may be overtaken.
const reorderTime = 10 * time.Millisecond

// fate is what happens to a control message on its way, as Link says. What is written on
// Control besides, and all that is written on other streams, has none.
type fate struct {
	twice bool
	loose bool          // it may be overtaken
	extra time.Duration // on the way
}

// draw draws the fate of the control message that is written next, or that it is lost.
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

// takeFate returns the fate of what is written now.
func (s *stream) takeFate() fate {
	s.node.net.mu.Lock()
	defer s.node.net.mu.Unlock()
	f := s.next
	s.next = fate{}
	return f
}
