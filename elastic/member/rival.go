package member

// Key orders the branches of one history.
type Key struct {
	Stable  uint64 // number of stable steps
	Founder ID     // View.Founder of the branch's last view
	Epoch   uint64 // epoch of the branch's last view
	ID      ID     // the sender
}

// Beats reports whether the member with key k goes on when it meets the member with key o. If no
// view was ever forced there is one history, and the later view is right. Otherwise more stable
// steps win; then the branch without a forced view, or with the lower founder; then the later view;
// then the lower ID.
func (k Key) Beats(o Key) bool {
	forced := k.Founder != "" || o.Founder != ""
	switch {
	case forced && k.Stable != o.Stable:
		return k.Stable > o.Stable
	case k.Founder != o.Founder:
		return k.Founder < o.Founder
	case k.Epoch != o.Epoch:
		return k.Epoch > o.Epoch
	}
	return k.ID < o.ID
}

// branchConflict is a member's state for a meeting with another branch. Branches exist only where
// views can be forced (I10); of two that meet the one with the lesser Key ends.
type branchConflict struct {
	*membership
	local *localState

	stable uint64 // number of stable steps; never decreases
	frozen Key    // the key to compare while messages with it are under way
	until  uint64 // tick until which frozen is valid
	next   int    // index of the lost member to contact next
}

// freezeBeats is the number of beats for which a key stays frozen: much longer than the delay of
// any message.
const freezeBeats = 64

// key returns this member's present key.
func (c *branchConflict) key() Key {
	return Key{Stable: c.stable, Founder: c.view.Founder, Epoch: c.view.Epoch, ID: c.cfg.Self.ID}
}

// frozenKey returns the key that this member compares with a rival's. It stays the same while
// messages that contain it are under way. If it grew, both sides could find themselves ahead of the
// key that they received last, or both could find themselves behind it. As each member's key is one
// value, and keys are totally ordered, the member with the highest key never gives way.
func (c *branchConflict) frozenKey() Key {
	if c.tick >= c.until {
		c.frozen = c.key()
	}
	c.until = c.tick + freezeBeats*c.cfg.Beat
	return c.frozen
}

// rival reports whether an outsider's Chain is another branch of this history: it starts at a view
// that is known here, the voters have signed each step from there, one of the branches was forced
// (majorities have one history), the sender is in the last view, and its Key is of that view or of
// an earlier one. The Key is earlier if its sender has entered a view while the Key was frozen. It
// must not be recomputed then, as the sender compares the frozen one.
func (c *branchConflict) rival(msg Message, b branch) bool {
	if !b.known || !c.local.forces() {
		return false
	}
	rest, last := c.local.verifier().provedPart(b.root, b.rest)
	k := msg.Key
	return len(rest) == len(b.rest) && last.hash == msg.View && last.Rank(msg.From) >= 0 &&
		(last.Founder != "" || c.view.Founder != "") &&
		k.ID == msg.From && k.Epoch <= last.Epoch && (k.Founder == "" || k.Founder == last.Founder)
}

// seek contacts members that were given up without a quorum, one at a time: they may live, and have
// given up this branch. Without forced views there is nobody to contact.
func (c *branchConflict) seek() {
	var given []ID
	for _, e := range c.history.entries {
		if d := e.decision.Change; d.Forced {
			given = append(given, d.Lost...)
		}
	}
	if len(given) == 0 {
		return
	}
	c.next++
	c.send(Message{Kind: Status, To: given[c.next%len(given)]})
}
