package member

import "slices"

// localState is a member's own knowledge and requests: the content of its reports. Each method that
// records an event returns whether the event is new; the Machine then counts a new version, so that
// the proposer gets a report.
type localState struct {
	*membership

	// suspects are the members that cannot be reached from here. As in SWIM (Das, Gupta, Motivala,
	// 2002) a suspicion is not a death: it can be withdrawn, a missing vote of the suspect still
	// counts as missing (except with --quorum any), and the suspect can refute it by an answer to
	// the ballot (facts.answered).
	suspects idSet
	gone     idSet // the suspects at whose addresses no process listens
	// dead has the members whose death is certain. It includes deaths that other members have
	// reported, as these rest on a wait status, too.
	dead    idSet
	leaving bool // this member asks to leave
	// renew is set if the session of this view broke, so that a new view is needed.
	renew bool
	// sole is set if one launcher has started every peer that was ever admitted.
	sole   bool
	joins  []Request // requests admitted here, not yet in a view
	wishes wishes    // requests about grants

	version uint64 // version of the fields above; Seq of a report. It never decreases
	// reported is set once a report with content was made in this view.
	reported bool
}

// enter drops knowledge that a new view has settled. Knowledge of peers that are not in a view yet
// is kept: a peer may be suspected before this member receives the view that admits the peer.
func (l *localState) enter(v View, h *history) {
	settled := func(id ID) bool { return v.Rank(id) < 0 && h.had(id) }
	l.suspects = slices.DeleteFunc(l.suspects, settled)
	l.gone = slices.DeleteFunc(l.gone, settled)
	l.dead = slices.DeleteFunc(l.dead, settled)
	l.joins = slices.DeleteFunc(l.joins, func(r Request) bool { return !h.fresh(v, r) || !v.letsIn(r.Member) })
	l.wishes.settle(v)
	l.renew, l.reported = false, false
}

// suspect records that a peer cannot be reached. A newcomer that can no longer be reached loses its
// admission, as the group would put it out again at once.
func (l *localState) suspect(e Suspect) (changed bool) {
	if e.Peer == l.cfg.Self.ID {
		return false
	}
	if changed = !l.suspects.has(e.Peer); changed {
		l.suspects.add(e.Peer)
		l.joins = slices.DeleteFunc(l.joins, func(r Request) bool { return r.Member.ID == e.Peer })
	}
	if e.Gone {
		l.gone.add(e.Peer)
	}
	return changed
}

// unsuspect withdraws a suspicion.
func (l *localState) unsuspect(id ID) (changed bool) {
	changed = l.suspects.has(id)
	l.suspects.remove(id)
	l.gone.remove(id)
	return changed
}

// reachable reports whether a peer is neither suspected nor dead.
func (l *localState) reachable(id ID) bool { return !l.suspects.has(id) && !l.dead.has(id) }

// admit records an admitted request, if the peer may still join.
func (l *localState) admit(r Request) (changed bool) {
	same := func(o Request) bool { return o.Member.ID == r.Member.ID }
	if l.phase != inside || !l.history.fresh(l.view, r) || !l.view.letsIn(r.Member) || slices.ContainsFunc(l.joins, same) {
		return false
	}
	l.joins = append(l.joins, r)
	return true
}

// wish records a request about grants. Requests that the view has fulfilled, or that it cannot
// fulfil, are dropped at once.
func (l *localState) wish(request func(w *wishes)) (changed bool) {
	if l.phase != inside {
		return false
	}
	request(&l.wishes)
	l.wishes.settle(l.view)
	return true
}

// askRenewal records that a new view is needed after the view of the epoch. A request for an
// earlier epoch is void: the present view has already replaced the session that broke (I4).
func (l *localState) askRenewal(epoch uint64) (changed bool) {
	if l.phase != inside || epoch != l.view.Epoch || l.renew {
		return false
	}
	l.renew = true
	return true
}

// report returns the report of this member's knowledge for the proposer. Until a report in this
// view has content, Seq is 0, so that the receivers need not keep the report, and relays can merge
// it with other reports.
func (l *localState) report() *Report {
	r := &Report{Seq: l.version, Leaving: l.leaving, Renew: l.renew, Joins: slices.Clone(l.joins),
		Grants: slices.Clone(l.wishes.grants), Revoke: slices.Clone(l.wishes.revoke), Kick: slices.Clone(l.wishes.kick)}
	r.Dead = l.members(l.dead)
	r.Unreachable = slices.DeleteFunc(l.members(l.suspects), l.dead.has)
	l.reported = l.reported || !r.empty()
	if !l.reported {
		r.Seq = 0
	}
	return r
}

// forces reports whether two views may follow one view in this group (I10).
func (l *localState) forces() bool { return l.cfg.Any || l.sole }

// verifier returns the verifier of the certificates of outsiders.
func (l *localState) verifier() verifier { return verifier{l.cfg.Keys, l.forces()} }
