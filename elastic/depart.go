package elastic

import "time"

// depart leaves the group by agreement. It waits, for at most the time patience, until this peer is
// out of the view and until members that lag behind have received the decision. It does not wait if
// too few members are left to agree.
func (d *driver) depart(patience time.Duration) {
	if s, _ := d.status.now(); s.phase != inside {
		return
	}
	d.leave(true)
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	// settled changes without a change of the status, so it is polled.
	poll := time.NewTicker(tickPeriod)
	defer poll.Stop()
	for {
		s, changed := d.status.now()
		// Without a quorum the members cannot agree; the others detect the loss of this peer by
		// themselves.
		if s.gap != nil || s.phase > inside && d.settled() {
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
func (d *driver) settled() bool {
	settled, ok := ask(&d.loop, func() bool { return d.m == nil || d.m.Settled() })
	return settled || !ok
}
