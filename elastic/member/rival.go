package member

// Key orders the branches of one history.
type Key struct {
	Stable  uint64 // number of stable steps
	Founder ID     // View.Founder of the branch's last view
	Epoch   uint64 // epoch of the branch's last view
	ID      ID     // the sender
}

// Beats reports whether the branch with key k goes on and the branch with key o ends. If neither
// branch has a forced view there is one history, and the later view is right. Otherwise more stable
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

// branchConflict is a member's state for the decision between its own and another branch. Branches
// exist only where views can be forced (I10); of two branches the branch with the lesser Key ends.
type branchConflict struct {
	*membership
	local *localState

	stable uint64 // number of stable steps; never decreases
	frozen Key    // the key to compare while messages with this key are in flight
	until  uint64 // tick until which frozen is valid
	next   int    // index of the member to contact next, among the members that forced changes have removed
}

// freezeBeats is the number of beats for which a key stays frozen: much longer than the delay of
// any message.
const freezeBeats = 64

// key returns this member's present key.
func (b *branchConflict) key() Key {
	return Key{Stable: b.stable, Founder: b.view.Founder, Epoch: b.view.Epoch, ID: b.cfg.Self.ID}
}

// frozenKey returns the key that this member compares with a rival's. The key stays the same while
// messages that contain it are in flight. If keys grew in the meantime, both sides could find their
// own key higher than the key that they received last, or both could find it lower. As each member
// compares with one fixed key, and keys are totally ordered, the member with the highest key is
// never fenced.
func (b *branchConflict) frozenKey() Key {
	if b.tick >= b.until {
		b.frozen = b.key()
	}
	b.until = b.tick + freezeBeats*b.cfg.Beat
	return b.frozen
}

// rival reports whether an outsider's Chain is another branch of this history: it starts at a view
// that is known here, the voters have signed each step from there, one of the branches was forced
// (majorities have one history), the sender is in the last view, and its Key is of that view or of
// an earlier one. The Key is of an earlier view if its sender has entered a view while the Key was
// frozen. The receiver must not compute a newer Key, as the sender compares its frozen Key, too.
func (b *branchConflict) rival(msg Message, theirs branch) bool {
	if !theirs.known || !b.local.forces() {
		return false
	}
	rest, last := b.local.verifier().provedPart(theirs.root, theirs.rest)
	k := msg.Key
	return len(rest) == len(theirs.rest) && last.hash == msg.View && last.Rank(msg.From) >= 0 &&
		(last.Founder != "" || b.view.Founder != "") &&
		k.ID == msg.From && k.Epoch <= last.Epoch && (k.Founder == "" || k.Founder == last.Founder)
}

// seek sends a Status to one of the members that forced changes have removed as lost, each time to
// another one: such a member may be alive, and have removed this member in another branch. Without
// forced views there is no such member.
func (b *branchConflict) seek() {
	var given []ID
	for _, e := range b.history.entries {
		if d := e.decision.Change; d.Forced {
			given = append(given, d.Lost...)
		}
	}
	if len(given) == 0 {
		return
	}
	b.next++
	b.send(Message{Kind: Status, To: given[b.next%len(given)]})
}
