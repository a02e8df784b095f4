package launch

import (
	"slices"
	"time"
)

const (
	// causePeriod is how long the report of a failure waits, so that its cause is reported first.
	causePeriod = 100 * time.Millisecond
	// shownAlone is the largest number of different failures that get a line each. More share one
	// line.
	shownAlone = 4
)

// failureReport collects the failures of processes that are not members of the group, and makes the
// lines about them. If one peer dies, other peers may fail as a consequence, and the launcher may
// receive the ends of those peers first. So the lines wait for causePeriod and begin with the
// likely cause. It does no I/O, reads no clock, and is not safe for concurrent use.
type failureReport struct {
	// pending has the failures without a line, in the order in which the launcher learned of them.
	pending []Exit
	dueAt   time.Time // time of the lines; valid while pending is not empty
	told    bool      // a failure has been reported
}

// add records a failure that was noticed at now.
func (x *failureReport) add(e Exit, now time.Time) {
	if len(x.pending) == 0 {
		x.dueAt = now.Add(causePeriod)
	}
	x.pending = append(x.pending, e)
}

// due returns the lines that are due at now. othersRun has the same meaning as for take.
func (x *failureReport) due(now time.Time, othersRun bool) []string {
	if len(x.pending) == 0 || now.Before(x.dueAt) {
		return nil
	}
	return x.take(othersRun)
}

// take returns the lines about all recorded failures, the likely cause first. If othersRun is set,
// the first line about a failure says that the other programs run on, which do not form a group
// yet.
func (x *failureReport) take(othersRun bool) []string {
	exits := x.pending
	x.pending = nil
	slices.SortFunc(exits, compareCause)
	groups := groupExits(exits)
	// Many failures at once get one line together.
	if len(groups) > shownAlone {
		x.told = true
		return []string{formatExits(exits)}
	}
	var lines []string
	for _, g := range groups {
		next := ""
		if othersRun && !x.told {
			next = "; the others run on"
		}
		x.told = true
		lines = append(lines, formatAlike(g)+next)
	}
	return lines
}
