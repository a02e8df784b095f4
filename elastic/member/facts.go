package member

import (
	"maps"
	"slices"
)

// facts are the inputs of next: everything from which a change may follow. Slices are by rank of
// view. Equal facts give equal changes, but members need not have equal facts: the ballot decides
// whose change becomes the next view.
type facts struct {
	view View
	cut  [][2]int // pairs of ranks; the first cannot reach the second
	// here is set, by rank, for the members that have answered the ballot. Without a ballot it is
	// set for the members that this member does not suspect.
	here []bool
	// asking is set while a ballot is under way and here shows the answers to it.
	asking  bool
	dead    []bool   // certain deaths
	leaving []bool   // members that ask to leave
	joins   []Member // admitted newcomers with fresh IDs
	renew   bool     // the session broke, and a new view is needed
	promote bool     // the members without a vote have been present for long enough
	wishes  wishes   // requests about grants
}

// nothingDue reports whether it is certain that no change follows from the knowledge here. The
// check saves the pass over all members in facts.
func (p *proposer) nothingDue() bool {
	return len(p.reports.last) == 0 && p.local.report().empty() && (p.view.Voters == len(p.view.Members) || !p.promotable())
}

// promotable reports whether the members without a vote are to get one.
func (p *proposer) promotable() bool {
	return p.reports.promotable(p.view, p.tick, p.cfg.Promote)
}

// facts collects this member's knowledge from which the next change follows.
func (p *proposer) facts() facts {
	n := len(p.view.Members)
	f := facts{view: p.view, here: make([]bool, n), dead: make([]bool, n), leaving: make([]bool, n), promote: p.promotable()}
	for i, o := range p.view.Members {
		f.dead[i] = p.local.dead.has(o.ID)
		f.here[i] = !p.local.suspects.has(o.ID)
	}
	if p.stage == preparing {
		copy(f.here, p.votes)
		f.asking = true
	}
	f.add(&p.history, p.rank, p.local.report())
	for _, rank := range slices.Sorted(maps.Keys(p.reports.last)) { // in rank order, as the order of a map is random
		f.add(&p.history, rank, p.reports.last[rank])
	}
	f.cut = slices.DeleteFunc(f.cut, f.answered)
	return f
}

// answered reports whether a pair can be ignored: the second member, which the first cannot reach,
// has answered the ballot under way, and does not report the first as unreachable. Then the first
// member only receives messages late: if the two were cut off from each other, each would report
// the other in time. So a slow member cannot put out the members whose messages it receives late.
// This is the refutation of a suspicion in SWIM. In this case Lifeguard (Dadgar, Phillips, Currey,
// 2018) doubts the observer, too, and not the observed member.
func (f *facts) answered(pair [2]int) bool {
	return f.asking && f.here[pair[1]] && !slices.Contains(f.cut, [2]int{pair[1], pair[0]})
}

// add adds a member's report.
func (f *facts) add(h *history, rank int, r *Report) {
	// Reports are combined by logical or and by union, so their order does not matter, except for
	// the order of newcomers.
	f.leaving[rank] = f.leaving[rank] || r.Leaving
	f.renew = f.renew || r.Renew
	f.wishes.add(r)
	for _, id := range r.Unreachable {
		if other := f.view.Rank(id); other >= 0 {
			f.cut = append(f.cut, [2]int{rank, other})
		}
	}
	for _, j := range r.Joins {
		// A newcomer may have asked several members; one admission counts.
		known := slices.ContainsFunc(f.joins, func(m Member) bool { return m.ID == j.Member.ID })
		if !known && h.fresh(f.view, j) {
			f.joins = append(f.joins, j.Member)
		}
	}
}
