package elastic

import (
	"time"

	"github.com/elrun/elrun/event"
)

// The reasons of an event.Leave about a peer that was neither kicked nor stalled.
const (
	leftAsked  = "asked"  // Leave was called
	leftClosed = "closed" // the program has closed its group
	leftFailed = "failed" // the loop of the program has failed at this peer only
)

// announceLeave logs that the peer of g has left, once, with the last step that its state has
// committed. The goroutine of Next calls it, or Close.
func announceLeave(g *Group, reason string) {
	g.leftLog.Do(func() {
		d := g.current()
		s, _ := d.status.now()
		if d.report.get().Failed {
			reason = leftFailed
		}
		g.Sessions().Emit(s.view.Epoch, d.report.committed(), event.Leave{Who: d.ep.Self.ID.Short(), Reason: reason})
	})
}

// leaveReason returns why Close leaves: a request to leave counts unless the last loop has come to its
// end.
func (g *Group) leaveReason() string {
	done, _ := g.outcome.get()
	select {
	case <-g.leaves:
		if done == nil {
			return leftAsked
		}
	default:
	}
	return leftClosed
}

// departPatience bounds the wait of settle. Where many peers share a core, an agreement takes
// seconds.
const departPatience = 5 * time.Second

// depart leaves the group by agreement, and waits as settle does. A peer that is no member any more
// has nothing to wait for: Next has waited after a leave.
func (d *driver) depart() {
	if s, _ := d.status.now(); s.phase != inside {
		return
	}
	d.leave(true)
	d.settle()
}

// settle waits, for at most departPatience, until this peer is out of the view and until members
// that lag behind have received the decision: the program may end at once after that. It does not
// wait if this peer is no member yet, or if too few members are left to agree.
func (d *driver) settle() {
	deadline := time.NewTimer(departPatience)
	defer deadline.Stop()
	// settled changes without a change of the status, so it is polled.
	poll := time.NewTicker(tickPeriod)
	defer poll.Stop()
	for {
		s, changed := d.status.now()
		// Without a quorum the members cannot agree. The others later detect that this peer is
		// silent or gone.
		if s.gap != nil || s.phase == outside || s.phase > inside && d.settled() {
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
