package member

import "slices"

// dissemination sends the change that ends a view to the members of the view, until all have
// acknowledged it or it was sent announceTimes times. Only the member that decided the change does
// this (it is the distinguished learner of Paxos: Paxos Made Simple, 2001, section 2.3).
type dissemination struct {
	*membership
	local    *localState
	relay    *relay
	catchUp  *catchUp
	conflict *branchConflict

	announcement // the last announcement; zero before the first one begins and after the last one ends
}

// announcement is the progress of one dissemination.
type announcement struct {
	before View   // the view that the change ends
	joined idSet  // new members, which need the whole view
	open   idSet  // members that have not acknowledged the change
	at     uint64 // tick of the last sending
	times  int    // number of sendings
}

// announce begins to send the change to all members of the view before and to the new members.
func (d *dissemination) announce(before View, c Change) {
	d.announcement = announcement{before: before}
	for _, p := range before.Members {
		if p.ID != d.cfg.Self.ID && !d.local.dead.has(p.ID) {
			d.open = append(d.open, p.ID)
		}
	}
	slices.Sort(d.open)
	// Newcomers are not in the view before the change, but must receive the view that contains
	// them.
	for _, p := range c.Join {
		d.open.add(p.ID)
		d.joined.add(p.ID)
	}
	d.sendOpen()
}

// announceTimes is the number of times that a change is sent to a member that does not answer.
// Afterwards the member receives it only when a Status shows that the member lags behind (catchUp).
const announceTimes = 6

// repeat sends the change again to members that have not acknowledged it, with exponential backoff.
// After the last repetition the announcement ends.
func (d *dissemination) repeat() {
	if len(d.open) == 0 || d.tick < d.at+d.cfg.Retry<<(d.times-1)+d.relay.spreadTime(len(d.before.Members)) {
		return
	}
	if d.times == announceTimes {
		d.announcement = announcement{}
		return
	}
	d.sendOpen()
}

// sendOpen sends the change to all members that have not acknowledged it, and the whole view to
// newcomers.
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
			d.send(Message{Kind: Status, To: id}) // the newcomer then asks for the long view itself
		default:
			d.catchUp.sendBase(id, d.conflict.key())
		}
	}
}

// acknowledged records that a peer has shown that it knows the view.
func (d *dissemination) acknowledged(id ID) { d.open.remove(id) }
