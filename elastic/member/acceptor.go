package member

// acceptor is the memory of one voter (a Paxos acceptor) for the change of the present view. The
// voter accepts a change unless it has promised a higher ballot (P1a of Paxos Made Simple, 2001,
// section 2.2), and never forgets the highest ballot in which it accepted a change. The memory is
// not on disk: a process that loses its memory never returns under its ID (I2).
type acceptor struct {
	promised Ballot  // a lower ballot gets no promise and no acceptance
	accepted Ballot  // ballot in which change was accepted
	change   *Change // the last accepted change, or nil
}

// prepare answers a Prepare. A Promise means that this voter accepts nothing below the ballot, and
// carries the change that was accepted before. A Reject carries the higher ballot that was promised
// before.
func (m *Machine) prepare(msg Message) {
	if !m.acceptor.promise(msg.Ballot) {
		m.send(Message{Kind: Reject, To: msg.From, Ballot: msg.Ballot, Seen: m.acceptor.promised})
		return
	}
	m.proposer.stepDown(msg.Ballot, msg.From)
	m.send(Message{Kind: Promise, To: msg.From, Ballot: msg.Ballot,
		Seen: m.acceptor.accepted, Change: m.acceptor.change, Report: m.local.report()})
}

// promise records the promise of a ballot. It returns false if a higher ballot was promised before.
// A repeated Prepare is answered again, so a proposer may repeat it.
func (a *acceptor) promise(b Ballot) bool {
	if b.Less(a.promised) {
		return false
	}
	a.promised = b
	return true
}

// accept answers an Accept: with a signed acceptance, or with a Reject.
func (m *Machine) accept(msg Message) {
	after, err := m.view.Apply(*msg.Change)
	if err != nil {
		return // no member proposes such a change
	}
	if !m.acceptor.accept(msg.Ballot, msg.Change) {
		m.send(Message{Kind: Reject, To: msg.From, Ballot: msg.Ballot, Seen: m.acceptor.promised})
		return
	}
	m.proposer.stepDown(msg.Ballot, msg.From)
	m.send(Message{Kind: Accepted, To: msg.From, Ballot: msg.Ballot, Signature: m.sign(msg.Ballot, after.hash)})
}

// accept records the acceptance of a change in a ballot. It returns false if a higher ballot was
// promised before.
func (a *acceptor) accept(b Ballot, c *Change) bool {
	if b.Less(a.promised) {
		return false
	}
	a.promised, a.accepted, a.change = b, b, c
	return true
}
