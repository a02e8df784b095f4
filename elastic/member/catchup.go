package member

// catchUp exchanges missing changes: it sends the log to members that lag behind, and asks members
// that are ahead (I9). With the Status messages of gossip this is anti-entropy (Demers et al.,
// Epidemic Algorithms for Replicated Database Maintenance, 1987): a member that missed every
// message of a change still receives the change.
type catchUp struct {
	*membership
	local    *localState
	conflict *branchConflict

	asked [2]uint64 // first tick at which the next Ask may be sent: to a member of the view, and to another peer
}

// ask asks a peer for the changes after the present view. At most one Ask a tick is sent to
// members, and one to other peers, so that messages of outsiders cannot delay an Ask to a member.
func (c *catchUp) ask(id ID) {
	next := &c.asked[0]
	if c.view.Rank(id) < 0 {
		next = &c.asked[1]
	}
	if *next <= c.tick {
		*next = c.tick + 1
		c.send(Message{Kind: Ask, To: id})
	}
}

// askWithin asks a reachable member of the view for changes, in each tick another member. It is
// called when an outsider has sent changes without a proof: only few members keep long proofs, but
// the members of a view believe each other without a proof.
func (c *catchUp) askWithin() {
	n := len(c.view.Members)
	for i := range n - 1 {
		to := c.view.Members[(c.rank+1+(int(c.tick)+i)%(n-1))%n].ID
		if c.local.reachable(to) {
			c.ask(to)
			return
		}
	}
}

// answerOther answers a message of another view (I9). It sends the missing changes to a sender that
// lags behind. If the sender's view is unknown it answers an Ask with the whole history, and any
// other message with an Ask.
func (c *catchUp) answerOther(msg Message) {
	switch {
	case c.history.index(msg.View) >= 0:
		c.sendChain(msg.From, msg.View)
	case msg.Kind == Ask:
		c.sendBase(msg.From, c.conflict.frozenKey())
	default:
		c.ask(msg.From)
	}
}

// answerJoiner handles a request to join. A peer that is a member already receives the views, a
// request without an epoch is answered with the present epoch, and a peer whose ID is not fresh is
// refused. Any other request goes to the caller in a notice, and the caller decides.
func (c *catchUp) answerJoiner(msg Message) {
	r := *msg.Request
	switch {
	case r.Member.ID != msg.From: // a request for another peer than the sender is invalid
	case c.view.Rank(msg.From) >= 0:
		c.sendBase(msg.From, c.conflict.key())
	case r.At == 0:
		c.send(Message{Kind: Status, To: msg.From}) // the newcomer repeats the request with this epoch
	case !c.history.fresh(c.view, r):
		c.send(Message{Kind: Fence, To: msg.From})
	default:
		c.notice(Notice{Kind: Asked, Request: r})
	}
}

// sendChain sends the changes after a view of the history.
func (c *catchUp) sendChain(to ID, after Hash) {
	if c.history.index(after) < 0 {
		c.sendBase(to, c.conflict.key()) // the view is no longer in the log
		return
	}
	msg := c.chain(after)
	msg.To = to
	if c.history.index(after) >= c.history.since(c.cfg.Self.ID) {
		msg.Changes = c.withoutLongProofs(msg.Changes) // this member was in that view, so its members believe the changes without long proofs
	}
	c.send(msg)
}

// chain returns the Chain of the changes after a view of the history. Changes that do not fit into
// one message are left out; the receiver asks for them.
func (c *catchUp) chain(after Hash) Message {
	i := c.history.index(after)
	return Message{Kind: Chain, After: after, Changes: fitting(c.history.decisions(i), MaxMessage-maxHead)}
}

// sendBase sends the whole history to a peer that has no view or an unknown view. If the history
// does not fit into one message, sendBase sends only the present view.
func (c *catchUp) sendBase(to ID, key Key) {
	base, changes := c.history.base, c.withoutLongProofs(c.history.decisions(0))
	if fit := fitting(changes, MaxMessage-maxHead-len(appendView(nil, base))); len(fit) < len(changes) {
		base, changes = c.view, nil
	}
	c.send(Message{Kind: Chain, To: to, Base: &base, Changes: changes, Key: key})
}

// withoutLongProofs removes proofs of more than Config.Direct votes, in place. Members of the view
// before and newcomers believe a change without a proof, and the member that decided the change
// keeps its proof for others. If views can be forced all members keep all proofs, because members
// of two branches prove each change to each other.
func (c *catchUp) withoutLongProofs(all []Decision) []Decision {
	if c.local.forces() {
		return all
	}
	for i := range all {
		if len(all[i].Proof.Votes) > c.cfg.Direct {
			all[i].Proof = Certificate{}
		}
	}
	return all
}

// maxHead is an upper bound of the encoded length of a Chain without view and changes, in bytes.
const maxHead = 1 << 10

// fitting returns the longest prefix of the decisions that fits into room bytes.
func fitting(all []Decision, room int) []Decision {
	for i, d := range all {
		if room -= len(appendDecision(nil, d)); room < 0 {
			return all[:i]
		}
	}
	return all
}
