package member

// catchUp exchanges missing changes: it sends the log to members that lag behind, and asks members
// that are ahead (I9). With the Status messages of gossip this is anti-entropy (Demers et al.,
// Epidemic Algorithms for Replicated Database Maintenance, 1987): a member that missed every
// message of a change still learns of it.
type catchUp struct {
	*membership
	local    *localState
	conflict *branchConflict

	asked [2]uint64 // for members of the view and for others, the first tick at which the next Ask may be sent
}

// ask asks a peer for the changes after the present view. At most one Ask a tick is sent to
// members, and one to other peers, so that outsiders cannot use up the limit of the members.
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

// askWithin asks a member that can be reached, each tick another one. It is called when an outsider
// has reported changes without a proof: only few members keep long proofs.
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

// answerOther answers a message of another view. It sends the missing changes to a sender that lags
// behind, and asks a sender whose view is unknown (I9).
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

// answerJoiner handles a request to join. If the peer is a member already, it sends the views.
// Otherwise it passes the request to the caller by a notice, and the caller decides.
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
		c.sendBase(to, c.conflict.key()) // no longer in the log
		return
	}
	msg := c.chain(after)
	if msg.To = to; c.history.index(after) >= c.history.since(c.cfg.Self.ID) {
		msg.Changes = c.withoutLongProofs(msg.Changes) // a member of that view believes this member
	}
	c.send(msg)
}

// chain returns the Chain of the changes after a view of the history. Changes that do not fit into
// one message are left out; the receiver asks for them.
func (c *catchUp) chain(after Hash) Message {
	i := c.history.index(after)
	return Message{Kind: Chain, After: after, Changes: fitting(c.history.decisions(i), MaxMessage-maxHead)}
}

// sendBase sends the whole history to a peer that has no view, or an unknown one. If it does not
// fit into one message, sendBase sends only the present view.
func (c *catchUp) sendBase(to ID, key Key) {
	base, changes := c.history.base, c.withoutLongProofs(c.history.decisions(0))
	if fit := fitting(changes, MaxMessage-maxHead-len(appendView(nil, base))); len(fit) < len(changes) {
		base, changes = c.view, nil
	}
	c.send(Message{Kind: Chain, To: to, Base: &base, Changes: changes, Key: key})
}

// withoutLongProofs removes proofs of more than Config.Direct votes, in place. Members of the view
// before and newcomers believe a change without a proof, and the member that decided the change
// keeps its proof for others. If views can be forced all members keep all proofs, because branches
// that meet prove each step to each other.
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
