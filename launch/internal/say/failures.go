package say

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/elrun/elrun/launch/spec"
)

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
