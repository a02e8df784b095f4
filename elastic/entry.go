package elastic

import (
	"time"
)

// slowEntry is the time after which this member logs which members have not entered the session
// that this member enters.
const slowEntry = 1500 * time.Millisecond

// sessionEntry is the entry of this member into the session of a view. It lasts from Connect until all
// members of the session are level. The driver's goroutine owns it.
type sessionEntry struct {
	view      View // the view of the session; epoch 0 while this member enters no session
	connected bool // this member has the connections that it needs for the session
	since     time.Time
	next      time.Duration // duration of the entry at which the next report is due
	told      string        // short IDs of the members that the last report names, separated by commas
}

// begin starts the entry into the session of v.
func (s *sessionEntry) begin(v View, now time.Time) {
	*s = sessionEntry{view: v, since: now, next: slowEntry}
}

// end ends the entry.
func (s *sessionEntry) end() { *s = sessionEntry{} }

// under reports whether this member enters the session of an epoch.
func (s *sessionEntry) under(epoch uint64) bool { return epoch > 0 && s.view.Epoch == epoch }

// waits reports whether this member waits for the others to connect in the session of an epoch.
func (s *sessionEntry) waits(epoch uint64) bool { return s.under(epoch) && !s.connected }

// due reports whether a report is due, and how long the entry has taken. The interval between
// reports doubles, like the interval between the stall reports of a call, so that a long wait stays
// visible in the log.
func (s *sessionEntry) due(now time.Time) (lasted time.Duration, ok bool) {
	lasted = now.Sub(s.since)
	if s.view.Epoch == 0 || lasted < s.next {
		return lasted, false
	}
	s.next *= 2
	if lasted < makeWayAfter {
		s.next = min(s.next, makeWayAfter) // a report is due at makeWayAfter, when members are asked to step down
	}
	return lasted, true
}
