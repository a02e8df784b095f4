package launch

import (
	"fmt"
	"time"

	"github.com/elrun/elrun/event"
)

// crowd is several members of which the same is told, each in an event of its own: that makes one
// line.
type crowd struct {
	kind, reason string
	who          []string // short IDs
	one          string   // the line if it is a single member
	due          time.Time
}

// crowdOf returns what e tells of a single member and other events may tell of others, nil if
// it is no such event.
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
		c.due = now.Add(costPeriod) // the view without it tells of it, if it comes
	default:
		return nil
	}
	return c
}

// gather keeps what is told of a member for a moment, in which the same may be told of others. It
// returns the lines of other events.
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

// disperse returns the lines about crowds whose time has come, all of them if now is zero.
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

// tell says that what was to be told of a member that was put out stands in another line.
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

// sample looks whether this host is overloaded, when something is told that may come of that.
func (c *changes) sample() {
	if c.overloaded == "" && c.load != nil {
		c.overloaded = c.load()
	}
}

// sudden reports whether a member may have gone because its host was too slow: nothing was heard
// of it, and it did not end.
func (r *reason) sudden() bool {
	return !r.left && r.end == "" && (r.out || r.cause == "silent" || r.cause == "unreachable" || r.cause == "stalled")
}
