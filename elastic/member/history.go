package member

import "slices"

// logDepth is the number of past changes that a member remembers. A member that lags behind by more
// changes receives a whole view instead.
const logDepth = 64

// history is the recent part of a lineage: a view and the changes since (the log). It keeps only
// changes and hashes after that view, and computes a later view when a peer asks for it.
type history struct {
	base    View
	entries []entry // the changes after base, oldest first
	last    View    // the view after the last entry; unset without entries
}

// entry is a decision and the hash of the view to which it led.
type entry struct {
	decision Decision
	hash     Hash
}

// push appends the decision that led to v.
func (h *history) push(d Decision, v View) {
	h.entries, h.last = append(h.entries, entry{d, v.hash}), v
	// The log is cut by half at a time, so that the base is not computed anew with every view.
	if len(h.entries) > logDepth {
		h.base = h.view(logDepth / 2)
		h.entries = slices.Clone(h.entries[logDepth/2:])
	}
}

// view returns the view that follows base by i changes.
func (h *history) view(i int) View {
	if i > 0 && i == len(h.entries) {
		return h.last
	}
	v := h.base
	for _, e := range h.entries[:i] {
		if known, ok := v.views.known(e.hash); ok {
			v = known
			continue
		}
		v, _ = v.follow(e.decision.Change) // cannot fail, as the change was applied before
		v.hash = e.hash
	}
	return v
}

// index returns the number of changes from base to the view with this hash, or -1.
func (h *history) index(hash Hash) int {
	if hash == h.base.hash {
		return 0
	}
	for i := len(h.entries); i > 0; i-- {
		if h.entries[i-1].hash == hash {
			return i
		}
	}
	return -1
}

// since returns the number of changes from base to the first view that contains a member. If no
// view contains it, the result is greater than the number of entries.
func (h *history) since(id ID) int {
	if h.base.Rank(id) >= 0 {
		return 0
	}
	for i, e := range h.entries {
		if slices.ContainsFunc(e.decision.Change.Join, func(m Member) bool { return m.ID == id }) {
			return i + 1
		}
	}
	return len(h.entries) + 1
}

// decisions returns the decisions from index i on.
func (h *history) decisions(i int) []Decision {
	var all []Decision
	for _, e := range h.entries[i:] {
		all = append(all, e.decision)
	}
	return all
}

// had reports whether id is known to have been a member, now or in a view that the log reaches.
func (h *history) had(id ID) bool {
	_, ok := h.member(id)
	return ok
}

// fresh reports whether a peer may join the view v: the epoch of its request is in the range of the
// log, its ID has not been a member since, and its ID is not barred. So no ID joins twice (I2),
// although no member remembers all IDs.
func (h *history) fresh(v View, r Request) bool {
	return r.At >= h.base.Epoch && v.Rank(r.Member.ID) < 0 && !h.had(r.Member.ID) &&
		!slices.Contains(v.Barred, r.Member.ID) && (r.Member.Was == "" || h.returns(v, r.Member))
}

// returns reports whether a peer may come back under another ID. As far as the log reaches, its
// former ID was admitted by the same grant, is not in the view, was not kicked, and no other ID has
// come back for it.
func (h *history) returns(v View, m Member) bool {
	before, ok := h.member(m.Was)
	return ok && before.By == m.By && v.Rank(m.Was) < 0 && !slices.Contains(v.Barred, m.Was) && !h.succeeded(m.Was)
}

// succeeded reports whether a former member has come back under another ID.
func (h *history) succeeded(id ID) bool {
	is := func(m Member) bool { return m.Was == id }
	return slices.ContainsFunc(h.base.Members, is) || slices.ContainsFunc(h.entries, func(e entry) bool {
		return slices.ContainsFunc(e.decision.Change.Join, is)
	})
}

// member returns a past or present member by its ID, as far as the log reaches.
func (h *history) member(id ID) (Member, bool) {
	if rank := h.base.Rank(id); rank >= 0 {
		return h.base.Members[rank], true
	}
	for _, e := range h.entries {
		for _, m := range e.decision.Change.Join {
			if m.ID == id {
				return m, true
			}
		}
	}
	return Member{}, false
}

// branch is the relation of a Chain to the history of its receiver.
type branch struct {
	known bool       // root is in the history
	root  View       // the last common view
	fork  bool       // the history continues after root, with other changes
	rest  []Decision // the Chain's decisions after root
}

// meet returns the relation of a Chain to the history, with their last common view. It computes all
// hashes from the content of views, so it trusts no hash in the message.
func (h *history) meet(msg Message) branch {
	rest := msg.Changes
	// The sender names the view after which its changes begin, and expects that the receiver knows
	// this view.
	if msg.Base == nil {
		return h.part(h.index(msg.After), rest)
	}
	v := *msg.Base
	for {
		if i := h.index(v.hash); i >= 0 {
			return h.part(i, rest)
		}
		if len(rest) == 0 {
			// No view of the Chain is in the history: no common view is known.
			return branch{}
		}
		var err error
		if v, err = v.Apply(rest[0].Change); err != nil {
			return branch{}
		}
		rest = rest[1:]
	}
}

// part follows the decisions from the i-th view of the history on, until the Chain or the history
// ends, or they differ.
func (h *history) part(i int, rest []Decision) branch {
	if i < 0 {
		return branch{}
	}
	v := h.view(i)
	for _, e := range h.entries[i:] {
		if len(rest) == 0 {
			break
		}
		// The hash covers the whole lineage, so equal hashes mean equal views up to here.
		after, err := v.Apply(rest[0].Change)
		if err != nil || after.hash != e.hash {
			return branch{known: true, root: v, fork: true, rest: rest}
		}
		v, rest = after, rest[1:]
	}
	return branch{known: true, root: v, rest: rest}
}

// former looks for a past member that may come back under another ID in v, and whose ID matches, as
// far as the log reaches. It returns the values for the new Member's By and Was.
func (h *history) former(v View, match func(ID) bool) (by, was ID, ok bool) {
	look := func(all []Member) bool {
		for _, o := range all {
			if match(o.ID) {
				by, was = o.By, o.ID
				return h.returns(v, Member{By: by, Was: was})
			}
		}
		return false
	}
	ok = look(h.base.Members)
	for i := 0; !ok && i < len(h.entries); i++ {
		ok = look(h.entries[i].decision.Change.Join)
	}
	return by, was, ok
}
