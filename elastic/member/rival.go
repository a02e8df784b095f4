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

// branchConflict is a member's state for a meeting with another branch.
type branchConflict struct {
	stable uint64 // number of stable steps
	key    Key    // frozen while a rival is near
	until  uint64 // tick until which key is frozen
	seek   int    // index of the lost member to contact next
}

// freezeBeats is the number of beats for which a key stays frozen: much longer than the delay of
// any message.
const freezeBeats = 64

// key returns this member's present key.
func (m *Machine) key() Key {
	return Key{Stable: m.conflict.stable, Founder: m.view.Founder, Epoch: m.view.Epoch, ID: m.cfg.Self.ID}
}

// frozenKey returns the key that this member compares with a rival's. It stays the same while
// messages that contain it are under way. If it grew, both sides could find themselves ahead of the
// key that they received last, or both could find themselves behind it. As each member's key is one
// value, and keys are totally ordered, the member with the highest key never gives way.
func (m *Machine) frozenKey() Key {
	if m.tick >= m.conflict.until {
		m.conflict.key = m.key()
	}
	m.conflict.until = m.tick + freezeBeats*m.cfg.Beat
	return m.conflict.key
}

// meet decides which of the two goes on: this member, or the sender of a whole Chain of another
// branch. An outsider has to prove its branch. An outsider without a proof gets no answer, as two
// such members would answer each other for ever.
func (m *Machine) meet(msg Message, b branch, t treatment) {
	if t != believed && !m.rival(&msg, b) {
		return
	}
	if !msg.Key.Beats(m.frozenKey()) {
		m.sendBase(msg.From, m.frozenKey()) // the receiver will come to the same decision
		return
	}
	if msg.Key.Founder == "" && m.view.Founder == "" {
		// There is one history, and this member lags behind by more than any log.
		m.adopt(msg)
		if m.view.hash == msg.View {
			return
		}
	}
	m.leave(Notice{Kind: Fenced, Peer: msg.From, Why: "met a branch that is ahead"})
}

// rival reports whether an outsider's Chain is another branch of this history: it starts at a view
// that is known here, the voters have signed each step from there, one of the branches was forced
// (majorities have one history), and the sender is in the last view. Of Key only the stable steps
// are taken from the sender; the other fields are recomputed.
func (m *Machine) rival(msg *Message, b branch) bool {
	if !b.known || !m.forces() {
		return false
	}
	rest, last := m.provedPart(b.root, b.rest)
	msg.Key = Key{Stable: msg.Key.Stable, Founder: last.Founder, Epoch: last.Epoch, ID: msg.From}
	return len(rest) == len(b.rest) && last.hash == msg.View && last.Rank(msg.From) >= 0 &&
		(last.Founder != "" || m.view.Founder != "")
}

// seekRivals contacts members that were given up without a quorum, one at a time: they may live,
// and have given up this branch.
func (m *Machine) seekRivals() {
	var given []ID
	for _, e := range m.history.entries {
		if c := e.decision.Change; c.Forced {
			given = append(given, c.Lost...)
		}
	}
	if len(given) == 0 {
		return
	}
	m.conflict.seek++
	m.send(Message{Kind: Status, To: given[m.conflict.seek%len(given)]})
}
