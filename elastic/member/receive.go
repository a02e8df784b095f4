package member

import (
	"fmt"
)

// receive handles a message, as far as its sender is believed (treatmentOf). The order of the cases
// matters: a machine handles a Gather in each phase, and a Chain whatever the view of its sender.
func (m *Machine) receive(msg Message) {
	t, _ := treatmentOf(msg.Kind, m.sender(msg.From))
	switch {
	case t == refused || msg.From == m.cfg.Self.ID:
		return
	case msg.Kind == Gather:
		m.receiveGather(msg)
	case msg.Kind == Branch && m.phase == inside:
		m.relay.pass(msg)
	case m.phase == joining:
		m.receiveJoining(msg)
	case m.phase == outside:
		m.receiveOutside(msg)
	case msg.Kind == Chain:
		m.follow(msg, t)
	case msg.Kind == Ask && msg.Request != nil:
		m.catchUp.answerJoiner(msg)
	case msg.View != m.view.hash:
		m.catchUp.answerOther(msg)
	default:
		m.dissemination.acknowledged(msg.From)
		if t == believed {
			m.receivePresent(msg)
		} // an outsider that sends the hash of this view has learned that it is out
	}
}

// receivePresent handles a message of a member of the present view about that view.
func (m *Machine) receivePresent(msg Message) {
	rank := m.view.Rank(msg.From)
	// A message of any kind shows that its sender has entered this view.
	m.reports.present(rank, m.tick)
	switch msg.Kind {
	case Ask:
		m.send(Message{Kind: Status, To: msg.From})
	case Tell:
		m.takeReport(rank, msg.Report)
	case Prepare:
		m.prepare(msg)
	case Accept:
		m.accept(msg)
	case Promise:
		m.takeReport(rank, msg.Report)
		m.proposer.promised(rank, msg)
	case Accepted:
		m.proposer.accepted(rank, msg)
	case Reject:
		m.proposer.rejected(msg)
	}
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

// takeReport records a member's report, unless a later report was recorded before. A reported death
// is certain for this member, too; a reported suspicion remains a suspicion of the reporting member
// only.
func (m *Machine) takeReport(rank int, r *Report) {
	if !m.reports.take(rank, r) {
		return
	}
	for _, id := range r.Dead {
		if m.view.Rank(id) >= 0 && !m.local.dead.has(id) {
			m.local.dead.add(id)
			m.quorum.invalidate()
		}
	}
	m.proposer.reconsider()
}

// receiveGather handles the answers to a spread. If this member is the author of the spread, each
// answer is handled as a message of its sender. Answers to a spread of another member go to the
// relay.
func (m *Machine) receiveGather(msg Message) {
	s := msg.Spread
	if s.Author != m.cfg.Self.ID {
		m.relay.gather(msg)
		return
	}
	v := m.view
	// Answers may come after the view has changed. The view before the present one is kept for
	// these answers.
	if s.In != v.hash {
		v = m.dissemination.before
	}
	if s.In != v.hash {
		return // the answers belong to a still earlier view
	}
	for _, a := range s.Answers {
		// These votes are late if an earlier answer of the same message has completed the quorum.
		// The authors of these votes are sent the new view already.
		late := a.Message.View != m.view.hash && a.Message.View == m.dissemination.before.hash
		for _, rank := range a.Ranks {
			// The ranks come from another member, so they are checked.
			if !late && int(rank) < len(v.Members) {
				one := *a.Message
				one.From, one.To = v.Members[rank].ID, m.cfg.Self.ID
				m.receive(one)
			}
		}
	}
}

// receiveOutside handles messages after this member is out of the group. This member still sends
// changes to members that do not have the view without it.
func (m *Machine) receiveOutside(msg Message) {
	if msg.View == m.view.hash {
		m.dissemination.acknowledged(msg.From)
		return
	}
	// A Chain is never answered with a Chain: two members that are out would answer each other for
	// ever.
	if msg.Kind != Chain && m.history.index(msg.View) >= 0 {
		m.catchUp.sendChain(msg.From, msg.View)
	}
}

// follow handles a Chain of decided changes. An outsider's changes count up to the first change
// that is not proved by the voters of the view before it.
func (m *Machine) follow(msg Message, t treatment) {
	b := m.history.meet(msg)
	switch {
	case b.known && !b.fork:
		rest := b.rest
		if t != believed {
			if rest, _ = m.local.verifier().provedPart(b.root, rest); len(rest) == 0 && len(b.rest) > 0 {
				// Unproven changes may still be true: a member of the present view may have them.
				m.catchUp.askWithin()
				return
			}
		}
		m.enterAll(rest)
		m.send(Message{Kind: Status, To: msg.From})
	// The log does not reach back to the view that the changes follow. The answer to this Ask
	// begins with a whole view.
	case !b.known && msg.Base == nil:
		m.catchUp.ask(msg.From)
	case msg.Base == nil:
		m.catchUp.sendBase(msg.From, m.conflict.frozenKey())
	default:
		m.meet(msg, b, t)
	}
}

// enterAll enters the views to which the decisions lead, in order.
func (m *Machine) enterAll(all []Decision) {
	for _, d := range all {
		v, err := m.view.Apply(d.Change)
		// One of the views may be without this member.
		if err != nil || m.phase != inside {
			return
		}
		m.move(d, v)
	}
}

// meet decides whether this member is fenced by a whole Chain that contradicts its history: this
// member or the sender goes on. An outsider has to prove its branch. An outsider without a proof
// gets no answer, as two members without proofs would answer each other for ever.
func (m *Machine) meet(msg Message, b branch, t treatment) {
	if t != believed && !m.conflict.rival(msg, b) {
		return
	}
	if !msg.Key.Beats(m.conflict.frozenKey()) {
		m.catchUp.sendBase(msg.From, m.conflict.frozenKey()) // the receiver will come to the same decision
		return
	}
	if t == believed && msg.Key.Founder == "" && m.view.Founder == "" {
		// Without a founder in both Keys there is one history, and this member lags behind by more
		// views than any log holds. The Key of an outsider does not prove this: it may be of a view
		// before a forced view.
		m.adopt(msg)
		if m.view.hash == msg.View {
			return
		}
	}
	m.leave(Notice{Kind: Fenced, Peer: msg.From, Why: "met a part of the job that is ahead of this peer"})
}

// met contacts a peer that is not in the view. A newcomer adds the peer to its contacts.
func (m *Machine) met(id ID) {
	switch {
	case m.phase == inside && m.view.Rank(id) < 0:
		m.send(Message{Kind: Status, To: id})
	case m.phase == joining:
		m.joiner.meet(id)
	}
}

// receiveJoining handles the answers to a newcomer.
func (m *Machine) receiveJoining(msg Message) {
	switch {
	case msg.Kind == Status:
		m.joiner.learnEpoch(msg)
	case msg.Kind == Fence:
		m.leave(Notice{Kind: Fenced, Peer: msg.From, Why: "has been a member already, or asked too long ago"})
	case msg.Kind == Chain && msg.Base != nil:
		m.adopt(msg)
	}
}

// adopt enters the view at the end of a whole Chain, if this peer is in it. A peer that was in an
// earlier view of the Chain and not in the last one is out for good.
func (m *Machine) adopt(msg Message) {
	h := history{base: m.cfg.Views.whole(*msg.Base)}
	v := h.base
	in := v.Rank(m.cfg.Self.ID) >= 0
	for _, d := range msg.Changes {
		after, err := v.Apply(d.Change)
		if err != nil {
			return
		}
		h.push(d, after)
		v = after
		in = in || v.Rank(m.cfg.Self.ID) >= 0
	}
	switch {
	case v.Rank(m.cfg.Self.ID) >= 0:
		m.history = h
		m.enter(v)
		m.gossip.reportPresence()
	// History and view are set before leave: receiveOutside answers from them.
	case in:
		m.history, m.view = h, v
		m.leave(Notice{Kind: Fenced, Peer: msg.From, Why: fmt.Sprintf("was a member, and is not in %v", v)})
	default:
		return
	}
	m.send(Message{Kind: Status, To: msg.From})
}

// sender is the relation of the author of a message to this machine.
type sender uint8

const (
	// ofView: a member of the present view. Only messages of such members are believed.
	ofView sender = iota
	// outsider: any other peer: a newcomer, a member that was put out, a member of a later view or
	// of another branch, or any other peer with a right to join.
	outsider
	// contact: for a newcomer, a peer that its caller named as a member.
	contact
	// unknown: for a newcomer, any other peer.
	unknown
	senders
)

// sender classifies the author of a message.
func (m *Machine) sender(id ID) sender {
	switch {
	case m.phase == joining:
		return m.joiner.sender(id)
	case m.view.Rank(id) >= 0:
		return ofView
	}
	return outsider
}

// treatment is the effect that a message may have.
type treatment uint8

const (
	// refused: the message is dropped.
	refused treatment = iota
	// answered: the sender may get the views that it lacks, or be asked for its view; nothing
	// changes at the receiver.
	answered
	// certified: the changes in the message count as far as certificates prove them, from a view
	// that the receiver knows.
	certified
	// believed: the message takes effect.
	believed
)

// treatmentOf returns the treatment by the table of the package comment, "Who is believed". ok is
// false for an unknown kind.
func treatmentOf(k Kind, from sender) (t treatment, ok bool) {
	rows := [...][senders]treatment{
		Status:   {believed, answered, believed, refused},
		Ask:      {believed, answered, refused, refused},
		Tell:     {believed, answered, refused, refused},
		Prepare:  {believed, answered, refused, refused},
		Promise:  {believed, answered, refused, refused},
		Reject:   {believed, answered, refused, refused},
		Accept:   {believed, answered, refused, refused},
		Accepted: {believed, answered, refused, refused},
		Chain:    {believed, certified, believed, refused},
		Fence:    {refused, refused, believed, refused},
		Branch:   {believed, refused, refused, refused},
		Gather:   {believed, refused, refused, refused},
	}
	if k == 0 || int(k) >= len(rows) {
		return refused, false
	}
	return rows[k][from], true
}
