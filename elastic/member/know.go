package member

import (
	"maps"
	"slices"
)

// idSet is a small sorted set of IDs. It is a slice, as the order of a map is random and the
// machine must be deterministic.
type idSet []ID

// has reports whether id is in the set.
func (s idSet) has(id ID) bool {
	_, found := slices.BinarySearch(s, id)
	return found
}

// add adds id.
func (s *idSet) add(id ID) {
	if i, found := slices.BinarySearch(*s, id); !found {
		*s = slices.Insert(*s, i, id)
	}
}

// remove removes id.
func (s *idSet) remove(id ID) {
	if i, found := slices.BinarySearch(*s, id); found {
		*s = slices.Delete(*s, i, i+1)
	}
}

// localState is a member's own knowledge and requests: the content of its reports.
type localState struct {
	suspects idSet     // members that cannot be reached from here
	gone     idSet     // the suspects at whose addresses no process listens
	dead     idSet     // certain deaths, also the deaths that others reported: a wait status is a fact
	leaving  bool      // this member asks to leave
	renew    bool      // the session of this view broke, a new view is needed
	sole     bool      // one launcher has started every peer ever admitted
	joins    []Request // requests admitted here, not yet in a view
	wishes   wishes    // requests about grants
	shown    int       // number of messages of show in this view

	version uint64 // version of the fields above; Seq of a report
	told    uint64 // version of the last report sent
	toldAt  uint64 // tick of the last report sent
	times   int    // number of times that this version was sent
	any     bool   // the last report was not empty, so the next is sent even if it is empty
	said    bool   // a report of this view was not empty
}

// enter drops knowledge that a new view has settled. Knowledge of peers that are not in a view yet
// is kept.
func (o *localState) enter(v View, h *history) {
	settled := func(id ID) bool { return v.Rank(id) < 0 && h.had(id) }
	o.suspects = slices.DeleteFunc(o.suspects, settled)
	o.gone = slices.DeleteFunc(o.gone, settled)
	o.dead = slices.DeleteFunc(o.dead, settled)
	o.joins = slices.DeleteFunc(o.joins, func(r Request) bool { return !h.fresh(v, r) || !v.letsIn(r.Member) })
	o.wishes.settle(v)
	o.any, o.renew = false, false
	o.said, o.shown = false, 0
}

// peerReports is the knowledge that a member has from the others' messages in the present view.
type peerReports struct {
	last  map[int]*Report // by rank; the last report of each member that has sent a report that was not empty
	here  []uint64        // bit set of the members that have shown that they are in this view
	since uint64          // tick at which a member was last added to here
}

// newPeerReports returns the knowledge at the beginning of a view of n members.
func newPeerReports(n, self int, tick uint64) peerReports {
	h := peerReports{last: make(map[int]*Report), here: make([]uint64, (n+63)/64)}
	h.present(self, tick)
	return h
}

// present records that a member is in this view.
func (h *peerReports) present(rank int, tick uint64) {
	if !h.has(rank) {
		h.here[rank/64] |= 1 << (rank % 64)
		h.since = tick
	}
}

// has reports whether a member has shown that it is in this view.
func (h *peerReports) has(rank int) bool { return h.here[rank/64]>>(rank%64)&1 != 0 }

// changed records new knowledge: a report is due, and the next change and the electorate are
// recomputed.
func (m *Machine) changed() {
	m.local.version++
	m.proposer.stale, m.proposer.retry = true, 0
	m.electing = nil
}

// suspect records whether a peer can be reached. A newcomer that cannot be reached any more loses
// its admission.
func (m *Machine) suspect(id ID, yes bool) {
	if yes == m.local.suspects.has(id) || id == m.cfg.Self.ID {
		return
	}
	if yes {
		m.local.suspects.add(id)
		m.local.joins = slices.DeleteFunc(m.local.joins, func(r Request) bool { return r.Member.ID == id })
	} else {
		m.local.suspects.remove(id)
	}
	m.changed()
}

// admit records an admitted request, if the peer may still join.
func (m *Machine) admit(r Request) {
	same := func(o Request) bool { return o.Member.ID == r.Member.ID }
	if m.phase != inside || !m.history.fresh(m.view, r) || !m.view.letsIn(r.Member) || slices.ContainsFunc(m.local.joins, same) {
		return
	}
	m.local.joins = append(m.local.joins, r)
	m.changed()
}

// renew records that a new view is needed after the view of the epoch.
func (m *Machine) renew(epoch uint64) {
	if m.phase == inside && epoch == m.view.Epoch && !m.local.renew {
		m.local.renew = true
		m.changed()
	}
}

// report returns this member's report of its own knowledge for the proposer.
func (m *Machine) report() *Report {
	r := &Report{Seq: m.local.version, Leaving: m.local.leaving, Renew: m.local.renew, Joins: slices.Clone(m.local.joins),
		Grants: slices.Clone(m.local.wishes.grants), Revoke: slices.Clone(m.local.wishes.revoke), Kick: slices.Clone(m.local.wishes.kick)}
	r.Dead = m.members(m.local.dead)
	r.Unreachable = slices.DeleteFunc(m.members(m.local.suspects), m.local.dead.has)
	m.local.said = m.local.said || !r.empty()
	if !m.local.said {
		r.Seq = 0
	}
	return r
}

// members returns the members of the view in a set, in rank order.
func (m *Machine) members(s idSet) []ID {
	var ids []ID
	for _, id := range s {
		if m.view.Rank(id) >= 0 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b ID) int { return m.view.Rank(a) - m.view.Rank(b) })
	return ids
}

// takeReport records a member's report, unless a later one came first.
func (m *Machine) takeReport(rank int, r *Report) {
	if old := m.reports.last[rank]; r.Seq == 0 || old != nil && old.Seq >= r.Seq {
		return
	}
	m.reports.last[rank] = r
	for _, id := range r.Dead {
		if m.view.Rank(id) >= 0 && !m.local.dead.has(id) {
			m.local.dead.add(id)
			m.electing = nil
		}
	}
	m.proposer.stale, m.proposer.retry = true, 0
}

// content reports whether it is certain that no change follows from the knowledge here. It saves a
// pass over all members.
func (m *Machine) content() bool {
	return len(m.reports.last) == 0 && m.report().empty() && (m.view.Voters == len(m.view.Members) || !m.promotable())
}

// facts collects all knowledge here from which the next change follows.
func (m *Machine) facts() facts {
	n := len(m.view.Members)
	f := facts{view: m.view, here: make([]bool, n), dead: make([]bool, n), leaving: make([]bool, n), promote: m.promotable()}
	for i, p := range m.view.Members {
		f.dead[i] = m.local.dead.has(p.ID)
		f.here[i] = !m.local.suspects.has(p.ID)
	}
	if m.proposer.stage == preparing {
		copy(f.here, m.proposer.votes)
		f.asking = true
	}
	f.add(&m.history, m.rank, m.report())
	for _, rank := range slices.Sorted(maps.Keys(m.reports.last)) {
		if r := m.reports.last[rank]; r != nil {
			f.add(&m.history, rank, r)
		}
	}
	f.cut = slices.DeleteFunc(f.cut, f.answered)
	return f
}

// answered reports whether a pair can be ignored: the second member, which the first cannot reach,
// has answered the ballot under way, and does not report the first as unreachable. Then the first
// member only receives messages late. If the two were cut off from each other, both would report it
// in time.
func (f *facts) answered(pair [2]int) bool {
	return f.asking && f.here[pair[1]] && !slices.Contains(f.cut, [2]int{pair[1], pair[0]})
}

// add adds a member's report.
func (f *facts) add(h *history, rank int, r *Report) {
	f.leaving[rank] = f.leaving[rank] || r.Leaving
	f.renew = f.renew || r.Renew
	f.wishes.add(r)
	for _, id := range r.Unreachable {
		if other := f.view.Rank(id); other >= 0 {
			f.cut = append(f.cut, [2]int{rank, other})
		}
	}
	for _, j := range r.Joins {
		known := slices.ContainsFunc(f.joins, func(m Member) bool { return m.ID == j.Member.ID })
		if !known && h.fresh(f.view, j) {
			f.joins = append(f.joins, j.Member)
		}
	}
}

// promotable reports whether all members without a vote have been present for Config.Promote ticks,
// so that a newcomer that dies at once never counts as a voter (I11).
func (m *Machine) promotable() bool {
	for rank := m.view.Voters; rank < len(m.view.Members); rank++ {
		if !m.reports.has(rank) {
			return false
		}
	}
	return m.tick >= m.reports.since+m.cfg.Promote
}

// reportOn sends the report to the first proposer in line, and repeats it while the view does not
// change. From the third time on it goes to the others in turn, too: the first may be stuck, and
// not all members notice.
func (m *Machine) reportOn() {
	o := &m.local
	if o.version == o.told && (!o.any || m.tick < o.toldAt+m.cfg.Retry<<min(o.times, 4)) {
		return
	}
	r := m.report()
	var to []ID
	if !r.empty() || o.any {
		to = m.ahead()
	}
	if len(to) == 0 {
		o.told = o.version
		return
	}
	if o.version != o.told {
		o.times = 0
	}
	o.any, o.told, o.toldAt = !r.empty(), o.version, m.tick
	o.times++
	m.send(Message{Kind: Tell, To: to[max(0, o.times-2)%len(to)], Report: r})
}

// ahead returns the members that propose before this one.
func (m *Machine) ahead() []ID {
	var ids []ID
	e := m.electorate()
	for i := range min(m.rank, len(e.dead)) {
		if !e.dead[i] && !e.silent[i] {
			ids = append(ids, m.view.Members[i].ID)
		}
	}
	return ids
}
