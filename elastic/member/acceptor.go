package member

// acceptor is the memory of one voter for the change of the present view. A process
// that loses it never comes back under its ID (I2), so it needs no disk.
type acceptor struct {
	promised Ballot  // answers nothing below
	accepted Ballot  // that of change
	change   *Change // accepted last, or nil
}

// prepare answers a Prepare: with a promise to accept nothing below its ballot and
// with what was accepted before, or with the higher ballot that was promised.
func (m *Machine) prepare(msg Message) {
	if !m.acceptor.promise(msg.Ballot) {
		m.send(Message{Kind: Reject, To: msg.From, Ballot: msg.Ballot, Seen: m.acceptor.promised})
		return
	}
	m.yield(msg.Ballot)
	m.send(Message{Kind: Promise, To: msg.From, Ballot: msg.Ballot,
		Seen: m.acceptor.accepted, Change: m.acceptor.change, Report: m.report()})
}

// promise reports whether the ballot is promised now. Promising one again repeats
// the same answer unless something was accepted in it, so a repeated Prepare is safe.
func (a *acceptor) promise(b Ballot) bool {
	if b.Less(a.promised) {
		return false
	}
	a.promised = b
	return true
}

// accept answers an Accept.
func (m *Machine) accept(msg Message) {
	after, err := m.view.Apply(*msg.Change)
	if err != nil {
		return // no member proposes that
	}
	if !m.acceptor.accept(msg.Ballot, msg.Change) {
		m.send(Message{Kind: Reject, To: msg.From, Ballot: msg.Ballot, Seen: m.acceptor.promised})
		return
	}
	m.yield(msg.Ballot)
	m.send(Message{Kind: Accepted, To: msg.From, Ballot: msg.Ballot, Signature: m.sign(msg.Ballot, after.hash)})
}

// accept reports whether the change is accepted now: unless a higher ballot was
// promised.
func (a *acceptor) accept(b Ballot, c *Change) bool {
	if b.Less(a.promised) {
		return false
	}
	a.promised, a.accepted, a.change = b, b, c
	return true
}
