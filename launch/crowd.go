package launch

import (
	"fmt"
	"time"

	"github.com/elrun/elrun/event"
)

// crowd collects events that report the same about several members, so that they become one line.
type crowd struct {
	kind, reason string
	who          []string // short IDs
	one          string   // the line if there is a single member
	due          time.Time
}

// crowdOf returns a crowd with the single member of e, or nil if events of its kind are not
// collected. line is the line about e alone.
func crowdOf(e event.Event, line string, now time.Time) *crowd {
	c := &crowd{kind: e.Body.Name(), one: line, due: now.Add(gatherPeriod)}
	switch b := e.Body.(type) {
	case event.Parked:
		c.reason, c.who = b.Reason, []string{b.Who}
	case event.Resync:
		if b.Began {
			return nil
		}
		c.reason, c.who = b.Reason, []string{b.Who}
	case event.Fenced:
		c.reason, c.who = b.Reason, []string{b.Who}
		c.due = now.Add(costPeriod) // the next view may report it first
	default:
		return nil
	}
	return c
}

// gather keeps the line about e for a moment if the same may be reported of other members. It
// returns lines that do not wait.
func (c *changes) gather(e event.Event, line string, now time.Time) []string {
	next := crowdOf(e, line, now)
	if next == nil {
		return []string{line}
	}
	for _, old := range c.crowds {
		if old.kind == next.kind && old.reason == next.reason {
			old.who = append(old.who, next.who...)
			return nil
		}
	}
	c.crowds = append(c.crowds, next)
	return nil
}

// disperse returns the lines of the crowds that are due at now, or of all crowds if now is zero.
func (c *changes) disperse(now time.Time) []string {
	var lines []string
	var later []*crowd
	for _, w := range c.crowds {
		switch {
		case !now.IsZero() && now.Before(w.due):
			later = append(later, w)
		case len(w.who) > 0:
			lines = append(lines, c.wordCrowd(w))
		}
	}
	c.crowds = later
	return lines
}

// tell removes a member that was put out from the waiting crowds, because another line reports it.
func (c *changes) tell(id string) {
	for _, w := range c.crowds {
		if w.kind == (event.Fenced{}).Name() {
			w.who = without(w.who, []string{id})
		}
	}
}

// wordCrowd returns the line about a crowd.
func (c *changes) wordCrowd(w *crowd) string {
	n := len(w.who)
	switch {
	case n == 1:
		return w.one
	case w.kind == (event.Parked{}).Name():
		return fmt.Sprintf("%d peers cannot take part yet: %s; they wait", n, w.reason)
	case w.kind == (event.Resync{}).Name():
		return fmt.Sprintf("%d peers have copied the state of the others%s", n, inBrackets(w.reason))
	}
	why := c.overloaded
	if why == "" {
		why = w.reason
	}
	return fmt.Sprintf("%d peers were put out of the group while they still run%s; they join again under new IDs", n, inBrackets(why))
}

// sample records the overload of this host when an event that it may have caused arrives.
func (c *changes) sample() {
	if c.overloaded == "" && c.load != nil {
		c.overloaded = c.load()
	}
}

// sudden reports whether a member may be gone because its host was too slow: it was silent, and
// its process did not end.
func (r *reason) sudden() bool {
	return !r.left && r.end == "" && (r.out || r.cause == "silent" || r.cause == "unreachable")
}
