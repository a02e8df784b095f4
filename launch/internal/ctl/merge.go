package ctl

import (
	"cmp"
	"slices"

	"github.com/elrun/elrun/launch/spec"
)

// MergeStatus combines the reports of the peers of one job: the latest view, with each member's
// own entry. During a membership change the reports may be from two epochs; peers outside the
// later view are then last. The result does not depend on the order of reports.
func MergeStatus(reports []spec.Status) spec.Status {
	var out spec.Status
	own, seen := map[string]spec.MemberStatus{}, map[string]float64{}
	var base []spec.MemberStatus
	counted := int64(-1) // the latest step of a report that has the number of steps
	// Take the view of the latest epoch, and the newest values of all reports. Reports of one epoch
	// have equal lists of members, so take the list of the first report.
	for i, s := range reports {
		if i == 0 || s.Epoch > out.Epoch {
			out.Job, out.Epoch, base = s.Job, s.Epoch, s.Members
		}
		elapsed := max(out.ElapsedMS, s.ElapsedMS)
		if i == 0 || s.Step > out.Step {
			out.Progress = s.Progress
		}
		// The number of steps falls when the batch grows.
		switch {
		case s.Of > 0 && s.Step > counted:
			out.Of, counted = s.Of, s.Step
		case s.Step == counted:
			out.Of = max(out.Of, s.Of)
		}
		if s.BatchSince > out.BatchSince {
			out.Batch, out.BatchSince = s.Batch, s.BatchSince
		}
		out.Step, out.ElapsedMS = max(out.Step, s.Step), elapsed
		if s.Balanced != nil && (out.Balanced == nil || s.Balanced.Step > out.Balanced.Step) {
			out.Balanced = s.Balanced
		}
		out.WaitingFor = append(out.WaitingFor, s.WaitingFor...)
		for _, m := range s.Members {
			if m.State != spec.StateUnknown {
				own[m.ID] = m
			} else if last, ok := seen[m.ID]; m.SeenMS >= 0 && (!ok || m.SeenMS < last) {
				seen[m.ID] = m.SeenMS
			}
		}
	}
	// A member's own report replaces the reports of other members about it.
	out.Members = []spec.MemberStatus{}
	for _, m := range base {
		if last, ok := seen[m.ID]; ok {
			m.SeenMS = last
		}
		if o, ok := own[m.ID]; ok {
			m = o
		}
		delete(own, m.ID)
		out.Members = append(out.Members, m)
	}
	for _, m := range own { // not in the latest view
		out.Members = append(out.Members, m)
	}
	slices.SortFunc(out.Members, compareMembers)
	// Several members may wait for the same member: name it once.
	slices.Sort(out.WaitingFor)
	out.WaitingFor = append([]string{}, slices.Compact(out.WaitingFor)...)
	return out
}

// compareMembers orders members by rank, then by index, then by ID, so that the order never
// depends on the order of reports. Members without a rank are last.
func compareMembers(a, b spec.MemberStatus) int {
	rank := func(m spec.MemberStatus) int {
		if m.Rank < 0 {
			return spec.MaxPeers
		}
		return m.Rank
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID))
}
