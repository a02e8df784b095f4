package say

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
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
func (f *FailureReport) Add(e spec.Exit, now time.Time) {
	if len(f.pending) == 0 {
		f.dueAt = now.Add(causePeriod)
	}
	f.pending = append(f.pending, e)
}

// Due returns the lines that are due at now. othersRun has the same meaning as for take.
func (f *FailureReport) Due(now time.Time, othersRun bool) []string {
	if len(f.pending) == 0 || now.Before(f.dueAt) {
		return nil
	}
	return f.Take(othersRun)
}

// Take returns the lines about all recorded failures, the likely cause first. If othersRun is set,
// the first line about a failure says that the other programs run on, which do not form a group
// yet.
func (f *FailureReport) Take(othersRun bool) []string {
	exits := f.pending
	f.pending = nil
	slices.SortFunc(exits, CompareCause)
	groups := groupExits(exits)
	// Many failures at once get one line together.
	if len(groups) > shownAlone {
		f.told = true
		return []string{FormatExits(exits)}
	}
	var lines []string
	for _, g := range groups {
		next := ""
		if othersRun && !f.told {
			next = "; the others run on"
		}
		f.told = true
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

// shownExits bounds the number of different ends of processes in a line.
const shownExits = 2

// FormatExits describes how processes ended, in one line. Processes that ended alike are described
// together.
func FormatExits(exits []spec.Exit) string {
	groups := groupExits(exits)
	var parts []string
	more := 0
	for i, g := range groups {
		if i < shownExits {
			parts = append(parts, formatAlike(g))
		} else {
			more += len(g)
		}
	}
	if more > 0 {
		parts = append(parts, fmt.Sprintf("%d more failed", more))
	}
	return strings.Join(parts, ", ")
}

// groupExits groups processes that ended alike. Groups and their members keep the order of exits.
func groupExits(exits []spec.Exit) (groups [][]spec.Exit) {
	for _, e := range exits {
		i := slices.IndexFunc(groups, func(g []spec.Exit) bool { return g[0].String() == e.String() })
		if i < 0 {
			groups = append(groups, []spec.Exit{e})
			continue
		}
		groups[i] = append(groups[i], e)
	}
	return groups
}

// maxIndices bounds the text of formatIndices, in bytes.
const maxIndices = 60

// formatAlike describes processes that ended alike, as in "peers 0-3 exited with status 1". A peer that was
// started again may have ended several times.
func formatAlike(exits []spec.Exit) string {
	last := exits[len(exits)-1]
	if !slices.ContainsFunc(exits, func(e spec.Exit) bool { return e.Index != last.Index }) {
		return fmt.Sprintf("peer %d (pid %d) %v", last.Index, last.PID, last)
	}
	var indices []int
	for _, e := range exits {
		indices = append(indices, e.Index)
	}
	list := formatIndices(indices)
	if len(list) > maxIndices {
		return fmt.Sprintf("%d peers, as peer %d (pid %d), %v", len(exits), exits[0].Index, exits[0].PID, strings.Replace(exits[0].String(), "was ", "were ", 1))
	}
	return fmt.Sprintf("peers %s %s", list, strings.Replace(exits[0].String(), "was ", "were ", 1))
}

// formatIndices lists indices in ascending order, as in "0-3, 7".
func formatIndices(indices []int) string {
	slices.Sort(indices)
	var parts []string
	for i := 0; i < len(indices); {
		last := i
		for last+1 < len(indices) && indices[last+1] <= indices[last]+1 {
			last++
		}
		part := strconv.Itoa(indices[i])
		if indices[last] > indices[i] {
			part += "-" + strconv.Itoa(indices[last])
		}
		parts, i = append(parts, part), last+1
	}
	return strings.Join(parts, ", ")
}
