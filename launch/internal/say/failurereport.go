package say

import (
	"cmp"
	"slices"
	"time"

	"github.com/elrun/elrun/launch/spec"
)

const (
	// causePeriod is how long the report of a failure waits, so that its cause is reported first.
	causePeriod = 100 * time.Millisecond
	// shownAlone is the largest number of different failures that get a line each. More share one
	// line.
	shownAlone = 4
)

// FailureReport collects the failures of processes that are not members of the group, and makes the
// lines about them. If one peer dies, other peers may fail as a consequence, and the launcher may
// receive the ends of those peers first. So the lines wait for causePeriod and begin with the
// likely cause. It does no I/O, reads no clock, and is not safe for concurrent use.
type FailureReport struct {
	// pending has the failures without a line, in the order in which the launcher learned of them.
	pending []spec.Exit
	dueAt   time.Time // time of the lines; valid while pending is not empty
	told    bool      // a failure has been reported
}

// Add records a failure that was noticed at now.
func (x *FailureReport) Add(e spec.Exit, now time.Time) {
	if len(x.pending) == 0 {
		x.dueAt = now.Add(causePeriod)
	}
	x.pending = append(x.pending, e)
}

// Due returns the lines that are due at now. othersRun has the same meaning as for take.
func (x *FailureReport) Due(now time.Time, othersRun bool) []string {
	if len(x.pending) == 0 || now.Before(x.dueAt) {
		return nil
	}
	return x.Take(othersRun)
}

// Take returns the lines about all recorded failures, the likely cause first. If othersRun is set,
// the first line about a failure says that the other programs run on, which do not form a group
// yet.
func (x *FailureReport) Take(othersRun bool) []string {
	exits := x.pending
	x.pending = nil
	slices.SortFunc(exits, CompareCause)
	groups := groupExits(exits)
	// Many failures at once get one line together.
	if len(groups) > shownAlone {
		x.told = true
		return []string{FormatExits(exits)}
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

// CompareCause orders exits so that the likely cause of the other exits comes first: deaths by a
// signal first, then by time. The kernel closes the sockets of a killed process before its parent
// can wait for it, so the other peers may have ended before the launcher learns of the death.
func CompareCause(a, b spec.Exit) int {
	bySignal := func(e spec.Exit) int {
		if e.Signal != 0 {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(bySignal(a), bySignal(b)), a.At.Compare(b.At))
}
