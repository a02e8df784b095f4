package member

import "slices"

// logDepth is how many past changes a member remembers. One that is further behind
// gets a whole view instead.
const logDepth = 64

// history is the last stretch of a lineage: a view and the changes since.
type history struct {
	base    View
	entries []entry
	last    View // where the entries lead; unset if there are none
}

// entry is a decision and the view to which it led.
type entry struct {
	decision Decision
	hash     Hash
}

// push adds the decision that led to v.
func (h *history) push(d Decision, v View) {
	h.entries, h.last = append(h.entries, entry{d, v.hash}), v
	// Half at a time, so that the base is not made anew with every view.
	if len(h.entries) > logDepth {
		h.base = h.view(logDepth / 2)
		h.entries = slices.Clone(h.entries[logDepth/2:])
	}
}

// view returns the view that stands i changes after base.
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
		v, _ = v.follow(e.decision.Change) // it was applied before
		v.hash = e.hash
	}
	return v
}

// index returns how many changes after base the view of a hash stands, or -1.
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

// since returns how many changes after base a member came in; more than there are if it is not
// in.
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

// decisions returns those from the i-th on.
func (h *history) decisions(i int) []Decision {
	var all []Decision
	for _, e := range h.entries[i:] {
		all = append(all, e.decision)
	}
	return all
}

// had reports whether id is known to have been a member at some time.
func (h *history) had(id ID) bool {
	_, ok := h.member(id)
	return ok
}

// fresh reports whether a peer may join the view v: it heard of the job within
// memory and has not been a member since. So no ID comes back (I2), though nobody
// remembers all of them.
func (h *history) fresh(v View, r Request) bool {
	return r.At >= h.base.Epoch && v.Rank(r.Member.ID) < 0 && !h.had(r.Member.ID) &&
		!slices.Contains(v.Barred, r.Member.ID) && (r.Member.Was == "" || h.returns(v, r.Member))
}

// returns reports whether a peer may come back under another ID: it was let in by the same
// grant as far as the log reaches, is out, and has not come back already.
func (h *history) returns(v View, m Member) bool {
	before, ok := h.member(m.Was)
	return ok && before.By == m.By && v.Rank(m.Was) < 0 && !slices.Contains(v.Barred, m.Was) && !h.succeeded(m.Was)
}

// succeeded reports whether a member has come back under another ID.
func (h *history) succeeded(id ID) bool {
	is := func(m Member) bool { return m.Was == id }
	return slices.ContainsFunc(h.base.Members, is) || slices.ContainsFunc(h.entries, func(e entry) bool {
		return slices.ContainsFunc(e.decision.Change.Join, is)
	})
}

// member returns a member of the past or present by its ID, as far as the log reaches.
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

// nextEpoch returns the epoch of the view to which c leads.
func nextEpoch(epoch uint64, c Change) uint64 {
	if c.Forced {
		// Those who are missing may have decided epoch+1 without us.
		return epoch + 2
	}
	return epoch + 1
}

// branch is how a Chain stands to the history of its receiver.
type branch struct {
	known bool // root is there
	root  View // the last view that both have
	fork  bool // the history goes on after root, and otherwise
	rest  []Decision
}

// meet finds the last view that a Chain and the history have in common. Hashes are made
// anew on the way, so none is believed.
func (h *history) meet(msg Message) branch {
	rest := msg.Changes
	if msg.Base == nil {
		return h.part(h.index(msg.After), rest)
	}
	v := *msg.Base
	for {
		if i := h.index(v.hash); i >= 0 {
			return h.part(i, rest)
		}
		if len(rest) == 0 {
			return branch{}
		}
		var err error
		if v, err = v.Apply(rest[0].Change); err != nil {
			return branch{}
		}
		rest = rest[1:]
	}
}

// part goes along the decisions that follow the i-th view of the history, up to where one
// of the two ends or they differ.
func (h *history) part(i int, rest []Decision) branch {
	if i < 0 {
		return branch{}
	}
	v := h.view(i)
	for _, e := range h.entries[i:] {
		if len(rest) == 0 {
			break
		}
		after, err := v.Apply(rest[0].Change)
		if err != nil || after.hash != e.hash {
			return branch{known: true, root: v, fork: true, rest: rest}
		}
		v, rest = after, rest[1:]
	}
	return branch{known: true, root: v, rest: rest}
}

// Returns looks among the members of the past that may come back under another ID for one that
// matches, as far as the log reaches. The result stands as Member would: its By and Was.
func (m *Machine) Returns(match func(ID) bool) (by, was ID, ok bool) {
	look := func(all []Member) bool {
		for _, o := range all {
			if match(o.ID) {
				by, was = o.By, o.ID
				return m.history.returns(m.view, Member{By: by, Was: was})
			}
		}
		return false
	}
	ok = look(m.history.base.Members)
	for i := 0; !ok && i < len(m.history.entries); i++ {
		ok = look(m.history.entries[i].decision.Change.Join)
	}
	return by, was, ok
}
