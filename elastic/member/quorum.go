package member

// Rule is the reason why votes suffice. The zero Rule means that they do not suffice.
type Rule uint8

// The rules, the strictest first.
const (
	// TooFew: not enough votes by any rule.
	TooFew Rule = iota
	// ByMajority: more than half of the electorate voted.
	ByMajority
	// ByCertain: every survivor voted, and fewer than a majority are certainly dead. Any two sets
	// that satisfy ByMajority or ByCertain share a live voter (doc.go, I10).
	ByCertain
	// BySole: every survivor voted, and the launcher that started every peer ever admitted reports
	// that all others are dead.
	BySole
	// ByAnyone: every member that is not suspected voted. Both halves of a partitioned group can
	// satisfy this rule.
	ByAnyone
)

// String returns the rule as it appears in reasons.
func (r Rule) String() string {
	switch r {
	case ByMajority:
		return "majority"
	case ByCertain:
		return "certain deaths"
	case BySole:
		return "all others certainly dead"
	case ByAnyone:
		return "any survivors"
	}
	return "too few"
}

// forced reports whether the rule allows that two views follow one.
func (r Rule) forced() bool { return r == BySole || r == ByAnyone }

// electorate is the set of members that decide the next view, with one member's knowledge of them.
// Its slices are by rank and equally long.
type electorate struct {
	dead      []bool // certainly dead
	silent    []bool // unreachable from here, but not necessarily dead
	sole      bool   // this member's launcher has started every peer ever admitted
	any       bool   // --quorum any
	nonVoters bool   // includes members without a vote, as no voter is left
}

// needed returns the number of votes of a majority.
func (e electorate) needed() int { return len(e.dead)/2 + 1 }

// rule returns the strictest rule by which the votes suffice.
func (e electorate) rule(voted []bool) Rule {
	votes, dead := 0, 0
	living, reachable := true, true // all members that are not dead have voted; all that are neither dead nor silent have voted
	for i, v := range voted {
		switch {
		case v:
			votes++
		case !e.dead[i]:
			living = false
			reachable = reachable && e.silent[i]
		}
		if e.dead[i] {
			dead++
		}
	}
	switch {
	case votes >= e.needed() && !e.nonVoters:
		return ByMajority
	case votes > 0 && living && !e.nonVoters && dead < e.needed():
		return ByCertain
	case votes > 0 && living && e.sole:
		return BySole
	case votes >= e.needed() && e.nonVoters && e.sole:
		return BySole
	case votes > 0 && reachable && e.any, votes >= e.needed() && e.nonVoters:
		return ByAnyone
	}
	return TooFew
}

// within returns the strictest rule that the reachable members, which are neither dead nor silent,
// can satisfy, and the number of reachable members.
func (e electorate) within() (r Rule, present int) {
	voted := make([]bool, len(e.dead))
	for i := range voted {
		voted[i] = !e.dead[i] && !e.silent[i]
		if voted[i] {
			present++
		}
	}
	return e.rule(voted), present
}

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
