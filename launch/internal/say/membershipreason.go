package say

import (
	"slices"

	"github.com/elrun/elrun/event"
)

// reason is the information about why a member has gone, or why it has come.
type reason struct {
	end      string   // how the member's process ended
	cause    string   // highest-ranking cause in the lost events about the member
	by       []string // short IDs of the members of this launcher that could not reach it
	detectMS float64
	limitMS  float64
	complete bool // the member's process has ended with status 0
	left     bool
	out      bool   // the member was put out of the view, but its process runs on
	why      string // why the member left, came or was put out
	step     int64  // the last step of a member that has left; 0 if unknown
	bytes    int64
	ms       float64
}

// isLoss reports whether the member has neither left nor ended with status 0.
func (r *reason) isLoss() bool { return !r.left && !r.complete }

// lost adds the report l, by the member with short ID by, to the reason of a lost member. The
// highest-ranking cause wins: a member that only saw a connection break knows less than a member
// whose wait timed out.
func (r *reason) lost(by string, l event.Lost) {
	if l.Cause == "unreachable" && !slices.Contains(r.by, by) {
		r.by = append(r.by, by)
	}
	if r.detectMS == 0 || l.DetectMS < r.detectMS {
		r.detectMS = l.DetectMS
	}
	if causeRank(l.Cause) > causeRank(r.cause) {
		r.cause, r.limitMS = l.Cause, l.LimitMS
	}
}

// causeRank ranks the causes of a loss by their certainty; a higher rank is more certain.
func causeRank(cause string) int {
	return slices.Index([]string{"", "reset", "unreachable", "silent", "exit"}, cause)
}

// formatLeave explains the reason of a leave event to people.
func formatLeave(reason string) string {
	switch reason {
	case "stalled":
		return "stalled: the others waited for this peer, and its program did not call Busy"
	case "closed":
		return "its program has closed the group"
	case "failed":
		return "its loop has failed"
	}
	return reason
}
