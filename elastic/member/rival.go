package member

// Key orders branches of one history that went different ways.
type Key struct {
	Stable  uint64 // steps that are stable
	Founder ID     // View.Founder
	Epoch   uint64
	ID      ID // of the sender
}

// Beats reports whether the member with k goes on when it meets the one with o.
// Where no view was ever forced there is one history, and the later view is right.
// Otherwise more stable steps win, then the branch that was not forced or that with
// the lower founder, then the later view, then the lower ID.
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

// rivalry is what a member needs for the case that it meets another branch.
type rivalry struct {
	stable uint64 // steps
	key    Key    // frozen while a rival is about
	until  uint64 // tick
	seek   int    // next of the lost members to look for
}

// freezeBeats is for how many beats a key is kept: much longer than a message is on
// its way.
const freezeBeats = 64

// key returns how this member stands now.
func (m *Machine) key() Key {
	return Key{Stable: m.rivalry.stable, Founder: m.view.Founder, Epoch: m.view.Epoch, ID: m.cfg.Self.ID}
}

// frozenKey returns what this member pits against a rival. It stays the same while
// messages about it are under way: if it grew, each side could find itself ahead of
// what it last heard of the other, or both behind. As each member's key is one value,
// and keys are ordered, the member with the highest key never gives way.
func (m *Machine) frozenKey() Key {
	if m.tick >= m.rivalry.until {
		m.rivalry.key = m.key()
	}
	m.rivalry.until = m.tick + freezeBeats*m.cfg.Beat
	return m.rivalry.key
}

// meet settles which goes on, this member or the sender of a whole Chain that went
// another way. An outsider has to prove that way. One that cannot gets no answer, or two
// such would answer each other for ever.
func (m *Machine) meet(msg Message, b branch, t treatment) {
	if t != believed && !m.rival(&msg, b) {
		return
	}
	if !msg.Key.Beats(m.frozenKey()) {
		m.sendBase(msg.From, m.frozenKey()) // it will see the same
		return
	}
	if msg.Key.Founder == "" && m.view.Founder == "" {
		// One history, and this member is further behind than any log reaches.
		m.adopt(msg)
		if m.view.hash == msg.View {
			return
		}
	}
	m.leave(Notice{Kind: Fenced, Peer: msg.From, Why: "met a branch that is ahead"})
}

// rival reports whether an outsider's Chain is another branch of this history: it begins
// with a view that is known here, its voters have signed each step from there, one of the
// branches was forced, as a majority has one history, and its sender is in the last
// view. Of Key only the stable steps are the sender's word; the rest is made anew.
func (m *Machine) rival(msg *Message, b branch) bool {
	if !b.known || !m.forces() {
		return false
	}
	rest, last := m.provedPart(b.root, b.rest)
	msg.Key = Key{Stable: msg.Key.Stable, Founder: last.Founder, Epoch: last.Epoch, ID: msg.From}
	return len(rest) == len(b.rest) && last.hash == msg.View && last.Rank(msg.From) >= 0 &&
		(last.Founder != "" || m.view.Founder != "")
}

// seekRivals looks for those who were given up without a quorum: they may live, and
// think the same of us.
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
	m.rivalry.seek++
	m.send(Message{Kind: Status, To: given[m.rivalry.seek%len(given)]})
}
