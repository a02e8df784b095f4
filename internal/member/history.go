package member

import "slices"

// logDepth is how many past changes a member remembers. One that is further behind
// gets a whole view instead.
const logDepth = 64

// history is the last stretch of a lineage: a view and the changes since.
type history struct {
	base    View
	entries []entry
}

// entry is a change and the view to which it led.
type entry struct {
	change Change
	epoch  uint64
	hash   Hash
}

// push adds the change that led to v.
func (h *history) push(c Change, v View) {
	h.entries = append(h.entries, entry{c, v.Epoch, v.hash})
	// Half at a time, so that the base is not made anew with every view.
	for len(h.entries) > logDepth {
		for _, e := range h.entries[:logDepth/2] {
			h.base, _ = h.base.Apply(e.change) // it was applied before
		}
		h.entries = slices.Clone(h.entries[logDepth/2:])
	}
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

// changes returns the changes from the i-th on.
func (h *history) changes(i int) []Change {
	var all []Change
	for _, e := range h.entries[i:] {
		all = append(all, e.change)
	}
	return all
}

// had reports whether id is known to have been a member at some time.
func (h *history) had(id ID) bool {
	if h.base.Rank(id) >= 0 {
		return true
	}
	return slices.ContainsFunc(h.entries, func(e entry) bool {
		return slices.ContainsFunc(e.change.Join, func(m Member) bool { return m.ID == id })
	})
}

// fresh reports whether a peer may join the view v: it heard of the job within
// memory and has not been a member since. So no ID comes back (I2), though nobody
// remembers all of them.
func (h *history) fresh(v View, r Request) bool {
	return r.At >= h.base.Epoch && v.Rank(r.Member.ID) < 0 && !h.had(r.Member.ID)
}

// nextEpoch returns the epoch of the view to which c leads.
func nextEpoch(epoch uint64, c Change) uint64 {
	if c.Forced {
		// Those who are missing may have decided epoch+1 without us.
		return epoch + 2
	}
	return epoch + 1
}

// ahead returns those changes of a Chain that come after the view of the receiver.
// fork is true if the chain cannot be joined to it though it starts within reach: it
// went another way.
func (h *history) ahead(msg Message, present Hash) (rest []Change, joined, fork bool) {
	at, rest := msg.After, msg.Changes
	if msg.Base != nil {
		at = msg.Base.hash
	}
	if i := h.index(at); i >= 0 {
		return h.skip(i, at, rest)
	}
	if msg.Base == nil {
		return nil, false, false
	}
	epoch := msg.Base.Epoch
	for i, c := range rest {
		epoch = nextEpoch(epoch, c)
		if at = chainHash(at, epoch, c); at == present {
			return rest[i+1:], true, false
		}
	}
	return nil, false, true
}

// skip drops those of the changes, which start at the i-th, that are in the history.
func (h *history) skip(i int, at Hash, rest []Change) (ahead []Change, joined, fork bool) {
	epoch := h.base.Epoch
	if i > 0 {
		epoch = h.entries[i-1].epoch
	}
	for _, e := range h.entries[i:] {
		if len(rest) == 0 {
			return nil, true, false
		}
		epoch = nextEpoch(epoch, rest[0])
		if at = chainHash(at, epoch, rest[0]); at != e.hash {
			return nil, false, true
		}
		rest = rest[1:]
	}
	return rest, true, false
}
