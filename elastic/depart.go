package elastic

import "time"

// depart leaves the group by agreement. It waits, for at most the time patience, until this peer is
// out of the view and until members that lag behind have received the decision. It does not wait if
// too few members are left to agree.
func (k *keeper) depart(patience time.Duration) {
	if s, _ := k.now(); s.phase != inside {
		return
	}
	k.leave(true)
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	poll := time.NewTicker(tickPeriod)
	defer poll.Stop()
	for {
		s, changed := k.now()
		if s.short != nil || s.phase > inside && k.settled() {
			return
		}
		select {
		case <-changed:
		case <-poll.C:
		case <-deadline.C:
			return
		}
	}
}

// settled reports whether no member waits for a decision from this peer.
func (k *keeper) settled() bool {
	settled := make(chan bool, 1)
	k.do(func() { settled <- k.m == nil || k.m.Settled() })
	select {
	case s := <-settled:
		return s
	case <-k.ctx.Done():
		return true
	}
}
