package say

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/internal/wire"
)

// Stalls decides which stall events become lines for people: a line for each stall of a culprit,
// however many members report the stall, which is repeated while the stall lasts (again), and one
// line for the entry into a session (entrystalls.go). It reads no clock and is not safe for concurrent use.
type Stalls struct {
	culprits map[string]*culprit // by short ID
	entries  []*entryStall       // in the order of their first reports
	// Load returns a description of the overload of this host, or "" if this host is not
	// overloaded. It is nil if peers run on other hosts.
	Load func() string
}

// culprit is a member for which other members wait.
type culprit struct {
	begun      time.Time // start of the present stall
	lastLine   time.Time // time of the last line
	lastReport time.Time // time of the last report
}

// stallPause is the minimum time between the lines about two stalls of the same culprit.
const stallPause = time.Minute

// again returns the age at which a stall gets its next line, if the last line was at the age told: 10
// s, 30 s, and then each minute. A hang would otherwise be told once, and scroll away.
func again(told time.Duration) time.Duration {
	switch {
	case told < 10*time.Second:
		return 10 * time.Second
	case told < 30*time.Second:
		return 30 * time.Second
	}
	return told.Truncate(time.Minute) + time.Minute
}

// Line returns a line about e, a stall that peer index reports, or "" if there is nothing new or
// the line waits for the reports of other peers (due). It names only the culprits that no recent
// line has named, and the end of a stall needs no line. The function describe describes members, given their short IDs.
func (s *Stalls) Line(index int, e event.Stall, now time.Time, describe func(string) string) string {
	if e.Over {
		return ""
	}
	if strings.HasPrefix(e.What, entering) {
		s.collect(index, e, now)
		return ""
	}
	fresh := s.freshOf(e, now)
	if len(fresh) == 0 {
		return ""
	}
	return formatStall(index, e, describe(strings.Join(fresh, ",")))
}

// formatStall returns the line about the stall e that peer index reports. names are the culprits.
func formatStall(index int, e event.Stall, names string) string {
	line := fmt.Sprintf("peer %d has waited %.1f s for %s in %s", index, e.SinceMS/1000, names, cmp.Or(e.What, e.Phase))
	if e.What != "" && e.Phase != "" {
		line += " (" + e.Phase + ")"
	}
	return line
}

// freshOf records the report e, and returns the culprits that need a line.
func (s *Stalls) freshOf(e event.Stall, now time.Time) []string {
	// The start of the stall distinguishes a new stall of a culprit from another member's report of
	// a stall that is already known.
	begun := now.Add(-time.Duration(e.SinceMS * float64(time.Millisecond)))
	var fresh []string
	for _, id := range wire.SplitIDs(e.Culprit) {
		if s.fresh(id, begun, now) {
			fresh = append(fresh, id)
		}
	}
	return fresh
}

// fresh records a report that another member has waited for this member since begun. It reports
// whether a line is needed: for the first report, for a new stall at least stallPause after the last
// line, and for a stall that has lasted until its next line (again).
func (s *Stalls) fresh(id string, begun, now time.Time) bool {
	// Clearing the map bounds the memory of long jobs; at worst a line is repeated.
	if s.culprits == nil || len(s.culprits) > maxReported {
		s.culprits = make(map[string]*culprit)
	}
	c := s.culprits[id]
	if c == nil {
		s.culprits[id] = &culprit{begun: begun, lastLine: now, lastReport: now}
		return true
	}
	news := now.Sub(c.begun) >= again(c.lastLine.Sub(c.begun))
	if begun.After(c.lastReport) {
		c.begun, news = begun, now.Sub(c.lastLine) >= stallPause
	}
	c.lastReport = now
	if news {
		c.lastLine = now
	}
	return news
}
