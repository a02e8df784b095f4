package member

import "slices"

// peerReports is the knowledge that a member has from the others' messages in the present view. It
// ends with the view, as it is stored by the ranks of the view.
type peerReports struct {
	// last has, by rank, the last report of each member that has sent a report with content.
	last map[int]*Report
	// here is the bit set of the members that have shown that they are in this view.
	here  []uint64
	since uint64 // tick at which a member was last added to here
}

// newPeerReports returns the knowledge at the beginning of a view of n members: only this member is
// known to be in it.
func newPeerReports(n, self int, tick uint64) peerReports {
	p := peerReports{last: make(map[int]*Report), here: make([]uint64, (n+63)/64)}
	p.present(self, tick)
	return p
}

// present records that a member is in this view.
func (p *peerReports) present(rank int, tick uint64) {
	if !p.has(rank) {
		p.here[rank/64] |= 1 << (rank % 64)
		p.since = tick
	}
}

// has reports whether a member has shown that it is in this view.
func (p *peerReports) has(rank int) bool { return p.here[rank/64]>>(rank%64)&1 != 0 }

// take records a member's report, unless its Seq is 0 or a report that is as late or later was
// recorded before. It returns whether it has recorded the report. Messages overtake each other, so
// Seq and not the order of arrival decides.
func (p *peerReports) take(rank int, r *Report) (changed bool) {
	if old := p.last[rank]; r.Seq == 0 || old != nil && old.Seq >= r.Seq {
		return false
	}
	p.last[rank] = r
	return true
}

// unreachable reports whether some member cannot reach a peer.
func (p *peerReports) unreachable(id ID) bool {
	for _, r := range p.last {
		if slices.Contains(r.Unreachable, id) {
			return true
		}
	}
	return false
}

// promotable reports whether all members of v without a vote have been present for some ticks, so
// that a newcomer that dies at once never counts as a voter (I11).
func (p *peerReports) promotable(v View, tick, ticks uint64) bool {
	for rank := v.Voters; rank < len(v.Members); rank++ {
		if !p.has(rank) {
			return false
		}
	}
	return tick >= p.since+ticks
}
