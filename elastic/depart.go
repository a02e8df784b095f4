package elastic

import "time"

// departPatience bounds the wait of depart. Where many peers share a core, an agreement takes
// seconds.
const departPatience = 5 * time.Second

// depart leaves the group by agreement. It waits, for at most departPatience, until this peer is
// out of the view and until members that lag behind have received the decision. It does not wait if
// too few members are left to agree.
func (d *driver) depart() {
	if s, _ := d.status.now(); s.phase != inside {
		return
	}
	d.leave(true)
	deadline := time.NewTimer(departPatience)
	defer deadline.Stop()
	// settled changes without a change of the status, so it is polled.
	poll := time.NewTicker(tickPeriod)
	defer poll.Stop()
	for {
		s, changed := d.status.now()
		// Without a quorum the members cannot agree. The others later detect that this peer is
		// silent or gone.
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
