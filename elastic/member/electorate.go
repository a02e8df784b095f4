package member

// electorate returns the members that decide the next view, and this member's knowledge of them. It
// is cached until something changes, as most messages change nothing.
func (m *Machine) electorate() electorate {
	if m.electing == nil {
		e := m.newElectorate()
		m.electing = &e
	}
	return *m.electing
}

// newElectorate returns the voters, or all members if no voter is left and a rule allows that
// (I10).
func (m *Machine) newElectorate() electorate {
	e := m.electors(m.view.Voters)
	if !e.sole && !e.any {
		return e
	}
	for i := range e.dead {
		if !e.dead[i] && (!e.any || !e.silent[i]) {
			return e
		}
	}
	e = m.electors(len(m.view.Members))
	e.beyond = len(e.dead) > m.view.Voters
	return e
}

// electors returns the electorate of the first n members.
func (m *Machine) electors(n int) electorate {
	return electorate{dead: m.marks(m.local.dead, n), silent: m.marks(m.local.suspects, n), sole: m.local.sole, any: m.cfg.Any}
}

// marks returns which of the first n members are in a set, by rank. The caller must not change the
// result.
func (m *Machine) marks(s idSet, n int) []bool {
	var ranks []int
	for _, id := range s {
		if rank := m.view.Rank(id); rank >= 0 && rank < n {
			ranks = append(ranks, rank)
		}
	}
	if l := m.view.lookup; l != nil && len(ranks) == 0 {
		return l.none[:n]
	}
	marks := make([]bool, n)
	for _, rank := range ranks {
		marks[rank] = true
	}
	return marks
}

// watchQuorum sends a notice when the quorum is lost, when the number of present voters changes
// while it is lost, and when it is back.
func (m *Machine) watchQuorum() {
	e := m.electorate()
	if m.watched == m.electing {
		return // the electorate is unchanged
	}
	m.watched = m.electing
	rule, present := e.within()
	if (rule == TooFew) == m.lost && (!m.lost || present == m.present) {
		return
	}
	m.lost, m.present = rule == TooFew, present
	n := Notice{Kind: QuorumBack, Present: present, Needed: e.needed(), Why: rule.String()}
	if m.lost {
		n.Kind = QuorumLost
	}
	m.notice(n)
}
