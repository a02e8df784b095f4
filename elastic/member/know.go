package member

import (
	"maps"
	"slices"
)

// idSet is a small sorted set. It is a slice so that its order never depends on a map.
type idSet []ID

func (s idSet) has(id ID) bool {
	_, found := slices.BinarySearch(s, id)
	return found
}

func (s *idSet) add(id ID) {
	if i, found := slices.BinarySearch(*s, id); !found {
		*s = slices.Insert(*s, i, id)
	}
}

func (s *idSet) remove(id ID) {
	if i, found := slices.BinarySearch(*s, id); found {
		*s = slices.Delete(*s, i, i+1)
	}
}

// own is what a member has found out itself, and what it wants.
type own struct {
	suspects idSet
	gone     idSet // those of suspects where nobody listens any more
	dead     idSet // also those that others reported: a wait status is a fact
	leaving  bool
	renew    bool // this view has had its time
	sole     bool
	joins    []Request // admitted here, not yet in a view
	wishes   wishes
	shown    int // how often this member has shown itself in this view, without a vote

	version uint64 // of all this; the Seq of a report
	told    uint64 // version sent last
	toldAt  uint64 // tick of that
	times   int    // that it was sent
	any     bool   // it said something, so the next is sent even if it is empty
	said    bool   // a report of this view had something in it
}

// enter drops what a new view has settled. What is known of peers that are not in a
// view yet is kept.
func (o *own) enter(v View, h *history) {
	settled := func(id ID) bool { return v.Rank(id) < 0 && h.had(id) }
	o.suspects = slices.DeleteFunc(o.suspects, settled)
	o.gone = slices.DeleteFunc(o.gone, settled)
	o.dead = slices.DeleteFunc(o.dead, settled)
	o.joins = slices.DeleteFunc(o.joins, func(r Request) bool { return !h.fresh(v, r) || !v.letsIn(r.Member) })
	o.wishes.settle(v)
	o.any, o.renew = false, false
	o.said, o.shown = false, 0
}

// heard is what a member has heard from the others in the present view, by rank.
type heard struct {
	reports map[int]*Report // of those that had something to say
	here    []uint64        // a bit of each that has shown that it is in this view
	since   uint64          // tick at which the last of them first did
}

func newHeard(n, self int, tick uint64) heard {
	h := heard{reports: make(map[int]*Report), here: make([]uint64, (n+63)/64)}
	h.present(self, tick)
	return h
}

// present notes that a member is in this view.
func (h *heard) present(rank int, tick uint64) {
	if !h.has(rank) {
		h.here[rank/64] |= 1 << (rank % 64)
		h.since = tick
	}
}

// has reports whether a member has shown that it is in this view.
func (h *heard) has(rank int) bool { return h.here[rank/64]>>(rank%64)&1 != 0 }

// changed notes that there is something new to act on and to report.
func (m *Machine) changed() {
	m.own.version++
	m.proposer.stale, m.proposer.retry = true, 0
	m.electing = nil
}

// suspect notes whether a peer can be reached. A peer that wants to join and cannot
// be reached any more is not asked for.
func (m *Machine) suspect(id ID, yes bool) {
	if yes == m.own.suspects.has(id) || id == m.cfg.Self.ID {
		return
	}
	if yes {
		m.own.suspects.add(id)
		m.own.joins = slices.DeleteFunc(m.own.joins, func(r Request) bool { return r.Member.ID == id })
	} else {
		m.own.suspects.remove(id)
	}
	m.changed()
}

// admit notes a request that is to be granted, if it still can be.
func (m *Machine) admit(r Request) {
	same := func(o Request) bool { return o.Member.ID == r.Member.ID }
	if m.phase != inside || !m.history.fresh(m.view, r) || !m.view.letsIn(r.Member) || slices.ContainsFunc(m.own.joins, same) {
		return
	}
	m.own.joins = append(m.own.joins, r)
	m.changed()
}

// renew notes that a view should follow that of the epoch.
func (m *Machine) renew(epoch uint64) {
	if m.phase == inside && epoch == m.view.Epoch && !m.own.renew {
		m.own.renew = true
		m.changed()
	}
}

// report returns what others should know of this member's knowledge.
func (m *Machine) report() *Report {
	r := &Report{Seq: m.own.version, Leaving: m.own.leaving, Renew: m.own.renew, Joins: slices.Clone(m.own.joins),
		Grants: slices.Clone(m.own.wishes.grants), Revoke: slices.Clone(m.own.wishes.revoke), Kick: slices.Clone(m.own.wishes.kick)}
	r.Dead = m.members(m.own.dead)
	r.Unreachable = slices.DeleteFunc(m.members(m.own.suspects), m.own.dead.has)
	m.own.said = m.own.said || !r.empty()
	if !m.own.said {
		r.Seq = 0
	}
	return r
}

// members returns those of a set that are in the view, in rank order.
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

// takeReport keeps a member's report, unless a later one came first.
func (m *Machine) takeReport(rank int, r *Report) {
	if old := m.heard.reports[rank]; r.Seq == 0 || old != nil && old.Seq >= r.Seq {
		return
	}
	m.heard.reports[rank] = r
	for _, id := range r.Dead {
		if m.view.Rank(id) >= 0 && !m.own.dead.has(id) {
			m.own.dead.add(id)
			m.electing = nil
		}
	}
	m.proposer.stale, m.proposer.retry = true, 0
}

// content reports whether nothing is known here from which a change could follow, so that
// there is no need to look at every member.
func (m *Machine) content() bool {
	return len(m.heard.reports) == 0 && m.report().empty() && (m.view.Voters == len(m.view.Members) || !m.promotable())
}

// facts gathers everything known here that bears on the next change.
func (m *Machine) facts() facts {
	n := len(m.view.Members)
	f := facts{view: m.view, here: make([]bool, n), dead: make([]bool, n), leaving: make([]bool, n), promote: m.promotable()}
	for i, p := range m.view.Members {
		f.dead[i] = m.own.dead.has(p.ID)
		f.here[i] = !m.own.suspects.has(p.ID)
	}
	if m.proposer.stage == preparing {
		copy(f.here, m.proposer.votes)
		f.asking = true
	}
	f.add(&m.history, m.rank, m.report())
	for _, rank := range slices.Sorted(maps.Keys(m.heard.reports)) {
		if r := m.heard.reports[rank]; r != nil {
			f.add(&m.history, rank, r)
		}
	}
	f.cut = slices.DeleteFunc(f.cut, f.answered)
	return f
}

// answered reports whether the second of a pair, which the first cannot reach, has
// answered the ballot under way and does not say the same of the first: then it is the
// first that hears late. Where the two are cut off from each other both say so in time.
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

// promotable reports whether all members without a vote have been here for a while,
// so that one that dies at once never counts (I11).
func (m *Machine) promotable() bool {
	for rank := m.view.Voters; rank < len(m.view.Members); rank++ {
		if !m.heard.has(rank) {
			return false
		}
	}
	return m.tick >= m.heard.since+m.cfg.Promote
}

// reportOn sends the report to the one that is to propose, and again while the view
// does not change. From the third time on the others get it in turn, too: the first
// may be stuck, and not all see that.
func (m *Machine) reportOn() {
	o := &m.own
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

// ahead returns the members that are to propose before this one.
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
