package member

import "slices"

// dissemination tells the members of a view the change that ends it, until all have acknowledged
// it. Only the member that decided the change does this (the learners of Paxos, told by a
// distinguished learner: Paxos Made Simple, 2001, section 2.3).
type dissemination struct {
	*membership
	local    *localState
	relay    *relay
	catchUp  *catchUp
	conflict *branchConflict

	announcement // the last one; zero before the first and after the end
}

// announcement is the progress of one dissemination.
type announcement struct {
	before View   // the view before
	joined idSet  // new members, which need the whole view
	open   idSet  // members that have not acknowledged
	at     uint64 // tick of the last sending
	times  int    // number of sendings
}

// tell begins to send the change to all members of the view before and to the new members.
func (d *dissemination) tell(before View, c Change) {
	d.announcement = announcement{before: before}
	for _, p := range before.Members {
		if p.ID != d.cfg.Self.ID && !d.local.dead.has(p.ID) {
			d.open = append(d.open, p.ID)
		}
	}
	slices.Sort(d.open)
	// Newcomers are not in the view before, but have to learn that they are members.
	for _, p := range c.Join {
		d.open.add(p.ID)
		d.joined.add(p.ID)
	}
	d.sendOpen()
}

// tellTimes is the number of times that a view is sent to a member that does not answer. Later the
// member has to ask, or to be asked.
const tellTimes = 6

// repeat sends the view again to members that have not acknowledged it, with exponential backoff.
// After the last repetition it ends.
func (d *dissemination) repeat() {
	if len(d.open) == 0 || d.tick < d.at+d.cfg.Retry<<(d.times-1)+d.relay.spreadTime(len(d.before.Members)) {
		return
	}
	if d.times == tellTimes {
		d.announcement = announcement{}
		return
	}
	d.sendOpen()
}

// sendOpen sends the view to all members that have not acknowledged it.
func (d *dissemination) sendOpen() {
	d.at = d.tick
	d.times++
	if d.history.index(d.before.hash) < 0 {
		d.announcement = announcement{} // the view is no longer in the log
		return
	}
	var ranks []uint32
	for _, id := range d.open {
		if !d.joined.has(id) {
			ranks = append(ranks, uint32(d.before.Rank(id)))
		}
	}
	slices.Sort(ranks)
	msg := d.catchUp.chain(d.before.hash)
	msg.Changes = d.catchUp.withoutLongProofs(msg.Changes)
	d.relay.sendAll(msg, d.before, ranks)
	for _, id := range d.open {
		switch {
		case !d.joined.has(id):
		case d.large():
			d.send(Message{Kind: Status, To: id}) // the newcomers ask their contacts for the long view, each a different contact
		default:
			d.catchUp.sendBase(id, d.conflict.key())
		}
	}
}

// acknowledged records that a peer has shown that it knows the view.
func (d *dissemination) acknowledged(id ID) { d.open.remove(id) }
