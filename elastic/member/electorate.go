package member

// quorumMonitor computes which members decide the next view, as far as this member knows, and
// reports when too few of them can be reached.
type quorumMonitor struct {
	*membership
	local *localState

	current *electorate // cached; nil if it must be computed anew
	watched *electorate // the electorate for which the quorum was last checked
	lost    bool        // the last notice was QuorumLost
	present int         // number of reachable electors in the last notice
}

// invalidate drops the cached electorate: the view or the knowledge of its members has changed.
func (q *quorumMonitor) invalidate() { q.current = nil }

// electorate returns the members that decide the next view, and this member's knowledge of them.
// The result is cached until the view or the knowledge changes, as most messages change neither.
func (q *quorumMonitor) electorate() electorate {
	if q.current == nil {
		e := q.compute()
		q.current = &e
	}
	return *q.current
}

// compute returns the voters, or all members if no voter is left and a rule allows that (I10).
func (q *quorumMonitor) compute() electorate {
	e := q.electors(q.view.Voters)
	if !e.sole && !e.any {
		return e
	}
	// The other members decide only if all voters are dead or, with --quorum any, dead or
	// unreachable.
	for i := range e.dead {
		if !e.dead[i] && (!e.any || !e.silent[i]) {
			return e
		}
	}
	e = q.electors(len(q.view.Members))
	e.nonVoters = len(e.dead) > q.view.Voters
	return e
}

// electors returns the electorate of the first n members.
func (q *quorumMonitor) electors(n int) electorate {
	return electorate{dead: q.marks(q.local.dead, n), silent: q.marks(q.local.suspects, n), sole: q.local.sole, any: q.cfg.Any}
}

// ahead returns the members that propose before this one: the electors with lower ranks that can be
// reached. Members propose in rank order, so all members that suspect the same peers agree on the
// first proposer, and competing ballots are rare. Safety does not depend on the order (Lamport,
// Paxos Made Simple, 2001, section 2.4: a distinguished proposer is needed for progress only).
func (q *quorumMonitor) ahead() []ID {
	var ids []ID
	e := q.electorate()
	for i := range min(q.rank, len(e.dead)) {
		if !e.dead[i] && !e.silent[i] {
			ids = append(ids, q.view.Members[i].ID)
		}
	}
	return ids
}

// watch sends a notice when the quorum is lost, when the number of reachable electors changes while
// the quorum is lost, and when the quorum is back.
func (q *quorumMonitor) watch() {
	e := q.electorate()
	if q.watched == q.current {
		return // the electorate is unchanged
	}
	q.watched = q.current
	rule, present := e.within()
	if (rule == TooFew) == q.lost && (!q.lost || present == q.present) {
		return
	}
	q.lost, q.present = rule == TooFew, present
	n := Notice{Kind: QuorumBack, Present: present, Needed: e.needed(), Why: rule.String()}
	if q.lost {
		n.Kind = QuorumLost
	}
	q.notice(n)
}
