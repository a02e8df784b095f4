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

// promise records the promise of a ballot. It returns false if a higher ballot was promised before.
// A repeated Prepare is answered again, so a proposer may repeat it.
func (a *acceptor) promise(b Ballot) bool {
	if b.Less(a.promised) {
		return false
	}
	a.promised = b
	return true
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
