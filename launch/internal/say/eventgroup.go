package say

import (
	"fmt"
	"time"

	"github.com/elrun/elrun/event"
)

// eventGroup collects events of one kind with one reason about several members, to print one line
// about all of them.
type eventGroup struct {
	kind, reason string
	members      []string // short IDs
	singleLine   string   // the line if there is a single member
	due          time.Time
}

// groupOf returns an eventGroup with the single member of e, or nil if events of its kind are not
// collected. line is the line about e alone.
func groupOf(e event.Event, line string, now time.Time) *eventGroup {
	c := &eventGroup{kind: e.Body.Name(), singleLine: line, due: now.Add(collectPeriod)}
	switch b := e.Body.(type) {
	case event.Parked:
		c.reason, c.members = b.Reason, []string{b.Who}
	case event.Resync:
		if b.Began {
			return nil
		}
		c.reason, c.members = b.Reason, []string{b.Who}
	case event.Fenced:
		c.reason, c.members = b.Reason, []string{b.Who}
		c.due = now.Add(costPeriod) // the line about the next view may report it first
	default:
		return nil
	}
	return c
}

// collect delays the line about e if the same event may follow for other members. It returns the
// lines to print now.
func (m *MembershipLog) collect(e event.Event, line string, now time.Time) []string {
	next := groupOf(e, line, now)
	if next == nil {
		return []string{line}
	}
	for _, old := range m.groups {
		if old.kind == next.kind && old.reason == next.reason {
			old.members = append(old.members, next.members...)
			return nil
		}
	}
	m.groups = append(m.groups, next)
	return nil
}

// takeDue returns the lines of the groups that are due at now, or of all groups if now is zero.
func (m *MembershipLog) takeDue(now time.Time) []string {
	var lines []string
	var later []*eventGroup
	for _, w := range m.groups {
		switch {
		case !now.IsZero() && now.Before(w.due):
			later = append(later, w)
		case len(w.members) > 0:
			lines = append(lines, m.formatGroup(w))
		}
	}
	m.groups = later
	return lines
}

// dropReported removes the member with a short ID from the waiting groups of members that were put
// out, because the line about a change reports the member.
func (m *MembershipLog) dropReported(id string) {
	for _, w := range m.groups {
		if w.kind == (event.Fenced{}).Name() {
			w.members = without(w.members, []string{id})
		}
	}
}

// formatGroup returns the line about a group.
func (m *MembershipLog) formatGroup(w *eventGroup) string {
	n := len(w.members)
	switch {
	case n == 1:
		return w.singleLine
	case w.kind == (event.Parked{}).Name():
		return fmt.Sprintf("%d peers cannot take part yet and wait: %s", n, w.reason)
	case w.kind == (event.Resync{}).Name():
		return fmt.Sprintf("%d peers have copied the state of the others%s", n, inBrackets(w.reason))
	}
	why := m.overloaded
	if why == "" {
		why = w.reason
	}
	return fmt.Sprintf("%d peers were put out of the group while they still run%s; they join again under new IDs", n, inBrackets(why))
}

// checkLoad records whether this host is overloaded. It is called when an event arrives that an
// overload may have caused.
func (m *MembershipLog) checkLoad() {
	if m.overloaded == "" && m.Load != nil {
		m.overloaded = m.Load()
	}
}

// maybeOverload reports whether a member may be gone because its host was too slow: the member was
// silent or put out, and its process has not ended.
func (r *reason) maybeOverload() bool {
	return !r.left && r.end == "" && (r.out || r.cause == "silent" || r.cause == "unreachable")
}
