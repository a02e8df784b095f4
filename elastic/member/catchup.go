package member

import (
	"fmt"
	"math/bits"
	"slices"
)

// receiveOther handles a message of another view. It sends the missing changes to a sender that
// lags behind, and asks a sender whose view is unknown (I9).
func (m *Machine) receiveOther(msg Message) {
	switch {
	case m.history.index(msg.View) >= 0:
		m.sendChain(msg.From, msg.View)
	case msg.Kind == Ask:
		m.sendBase(msg.From, m.frozenKey())
	default:
		m.ask(msg.From)
	}
}

// ask asks a peer for the changes after the present view. At most one Ask a tick is sent to each
// class of peers (type sender). Members are a class of their own, so that outsiders cannot use up
// their limit.
func (m *Machine) ask(id ID) {
	if next := &m.asked[m.sender(id)]; *next <= m.tick {
		*next = m.tick + 1
		m.send(Message{Kind: Ask, To: id})
	}
}

// askWithin asks a member of the present view for the changes after that view. It is called when an
// outsider has reported changes without a proof: only few members keep long proofs.
func (m *Machine) askWithin() {
	n := len(m.view.Members)
	for i := range n - 1 {
		to := m.view.Members[(m.rank+1+(int(m.tick)+i)%(n-1))%n].ID
		if !m.local.suspects.has(to) && !m.local.dead.has(to) {
			m.ask(to)
			return
		}
	}
}

// receiveOutside handles messages after this member is out. It still sends changes to members that
// do not know the view without this member.
func (m *Machine) receiveOutside(msg Message) {
	if msg.View == m.view.hash {
		m.dissemination.acknowledged(msg.From)
		return
	}
	if msg.Kind != Chain && m.history.index(msg.View) >= 0 {
		m.sendChain(msg.From, msg.View)
	}
}

// sendChain sends the changes after a view of the history.
func (m *Machine) sendChain(to ID, after Hash) {
	if m.history.index(after) < 0 {
		m.sendBase(to, m.key()) // no longer in the log
		return
	}
	msg := m.chain(after)
	if msg.To = to; m.history.index(after) >= m.history.since(m.cfg.Self.ID) {
		msg.Changes = m.brief(msg.Changes) // a member of that view believes this member
	}
	m.send(msg)
}

// chain returns the Chain of the changes after a view of the history. Changes that do not fit into
// one message are left out; the receiver asks for them.
func (m *Machine) chain(after Hash) Message {
	i := m.history.index(after)
	return Message{Kind: Chain, After: after, Changes: fitting(m.history.decisions(i), MaxMessage-maxHead)}
}

// sendBase sends the whole history to a peer that has no view, or an unknown one. If it does not
// fit into one message, sendBase sends only the present view.
func (m *Machine) sendBase(to ID, key Key) {
	base, changes := m.history.base, m.brief(m.history.decisions(0))
	if fit := fitting(changes, MaxMessage-maxHead-len(appendView(nil, base))); len(fit) < len(changes) {
		base, changes = m.view, nil
	}
	m.send(Message{Kind: Chain, To: to, Base: &base, Changes: changes, Key: key})
}

// brief removes proofs of more than Config.Direct votes, in place. Members of the view before and
// newcomers believe a change without a proof, and the member that decided the change keeps its
// proof for others. If views can be forced all members keep all proofs, because branches that meet
// prove each step to each other.
func (m *Machine) brief(all []Decision) []Decision {
	if m.forces() {
		return all
	}
	for i := range all {
		if len(all[i].Proof.Votes) > m.cfg.Direct {
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

// follow handles a Chain of decided changes. An outsider's changes count as far as they are signed
// by the voters of views that are known here or that follow from those.
func (m *Machine) follow(msg Message, t treatment) {
	b := m.history.meet(msg)
	switch {
	case b.known && !b.fork:
		rest := b.rest
		if t != believed {
			if rest, _ = m.provedPart(b.root, rest); len(rest) == 0 && len(b.rest) > 0 {
				m.askWithin()
				return
			}
		}
		m.catchUp(rest)
		m.send(Message{Kind: Status, To: msg.From})
	case !b.known && msg.Base == nil:
		m.ask(msg.From)
	case msg.Base == nil:
		m.sendBase(msg.From, m.frozenKey())
	default:
		m.meet(msg, b, t)
	}
}

// catchUp enters the views to which the decisions lead, in order.
func (m *Machine) catchUp(all []Decision) {
	for _, d := range all {
		v, err := m.view.Apply(d.Change)
		if err != nil || m.phase != inside {
			return
		}
		m.move(d, v)
	}
}

// beat sends a Status to one member after another, every Config.Beat ticks, so that a member that
// missed all other messages still learns of this one's view (gossip). In a group of more than
// Config.Direct members the Status goes to members at the distances 1, 2, 4, 8 and so on, to both
// sides on the ring of ranks, so that each member has few contacts.
func (m *Machine) beat() {
	if (m.tick+jitter(m.cfg.Self.ID, 0))%m.cfg.Beat != 0 {
		return
	}
	m.proposer.stale = true // the promotion of members without a vote may be due now
	m.beats++
	if len(m.view.Members) > 1 {
		m.send(Message{Kind: Status, To: m.view.Members[m.beatRank()].ID})
	}
	if m.rank >= m.view.Voters {
		m.show()
	}
	m.seekRivals()
}

// show reports, in a large group, that this newcomer is present, to the members that may propose
// its promotion to voter. Every other Status goes to the first of them, and the rest to the others
// in turn, as the first may be stuck.
func (m *Machine) show() {
	if len(m.view.Members) <= m.cfg.Direct {
		return // in a small group beat reaches every member
	}
	if to := m.ahead(); len(to) > 0 {
		at := m.local.shown % 2 * (1 + m.local.shown/2)
		m.local.shown++
		m.send(Message{Kind: Status, To: to[at%len(to)]})
	}
}

// beatRank returns the rank of the member that gets the next Status of beat.
func (m *Machine) beatRank() int {
	n := len(m.view.Members)
	if n <= m.cfg.Direct {
		return (m.rank + 1 + int(m.beats%uint64(n-1))) % n
	}
	levels := uint64(bits.Len(uint(n / 2))) // distances up to half of the ring
	d := 1 << (m.beats / 2 % levels)
	if m.beats%2 != 0 {
		d = n - d
	}
	// An unreachable member is replaced by the next one that can be reached.
	for tries := 1; tries < n && m.local.suspects.has(m.view.Members[(m.rank+d)%n].ID); tries++ {
		d = 1 + d%(n-1)
	}
	return (m.rank + d) % n
}

// dissemination is the state of the dissemination of a view by the member that decided it.
type dissemination struct {
	before View   // the view before
	joined idSet  // new members, which need the whole view
	open   idSet  // members that have not acknowledged
	at     uint64 // tick of the last sending
	times  int    // number of sendings
}

// tell begins to send the change to all members of the view before and to the new members.
func (m *Machine) tell(before View, c Change) {
	m.dissemination = dissemination{before: before}
	for _, p := range before.Members {
		if p.ID != m.cfg.Self.ID && !m.local.dead.has(p.ID) {
			m.dissemination.open = append(m.dissemination.open, p.ID)
		}
	}
	slices.Sort(m.dissemination.open)
	for _, p := range c.Join {
		m.dissemination.open.add(p.ID)
		m.dissemination.joined.add(p.ID)
	}
	m.sendOpen()
}

// tellTimes is the number of times that a view is sent to a member that does not answer. Later the
// member has to ask, or to be asked.
const tellTimes = 6

// tellAgain repeats the view to members that have not acknowledged it, with exponential backoff.
func (m *Machine) tellAgain() {
	t := &m.dissemination
	if len(t.open) == 0 || m.tick < t.at+m.cfg.Retry<<(t.times-1)+m.spreadTime(len(t.before.Members)) {
		return
	}
	if t.times == tellTimes {
		m.dissemination = dissemination{}
		return
	}
	m.sendOpen()
}

// sendOpen sends the view to all members that have not acknowledged it.
func (m *Machine) sendOpen() {
	t := &m.dissemination
	t.at = m.tick
	t.times++
	if m.history.index(t.before.hash) < 0 {
		m.dissemination = dissemination{} // the view is no longer in the log
		return
	}
	var ranks []uint32
	for _, id := range t.open {
		if !t.joined.has(id) {
			ranks = append(ranks, uint32(t.before.Rank(id)))
		}
	}
	slices.Sort(ranks)
	msg := m.chain(t.before.hash)
	msg.Changes = m.brief(msg.Changes)
	m.sendAll(msg, t.before, ranks)
	for _, id := range t.open {
		switch {
		case !t.joined.has(id):
		case len(m.view.Members) > m.cfg.Direct:
			m.send(Message{Kind: Status, To: id}) // the newcomers ask their contacts for the long view, each a different contact
		default:
			m.sendBase(id, m.key())
		}
	}
}

// acknowledged records that a peer has shown that it knows the view.
func (t *dissemination) acknowledged(id ID) { t.open.remove(id) }

// met contacts a peer that is not in the view. A newcomer adds the peer to its contacts.
func (m *Machine) met(id ID) {
	switch {
	case m.phase == inside && m.view.Rank(id) < 0:
		m.send(Message{Kind: Status, To: id})
	case m.phase == joining && !slices.Contains(m.joiner.contacts, id):
		m.joiner.contacts = append(m.joiner.contacts, id)
	}
}

// joiner is a machine's state before its first view.
type joiner struct {
	contacts []ID   // members to ask, in turn
	at       uint64 // Request.At; 0 until a member has answered
	when     uint64 // tick of the next request
	times    int    // number of requests sent
}

// askToJoin sends a request to the next contact when it is due, with exponential backoff.
func (m *Machine) askToJoin() {
	j := &m.joiner
	if m.tick < j.when || len(j.contacts) == 0 {
		return
	}
	to := j.contacts[j.times%len(j.contacts)]
	j.times++
	j.when = m.tick + m.cfg.Retry<<min(j.times, 4)
	m.sendRequest(to)
}

// sendRequest sends this peer's request to join.
func (m *Machine) sendRequest(to ID) {
	m.send(Message{Kind: Ask, To: to, Request: &Request{Member: m.cfg.Self, At: m.joiner.at}})
}

// answerJoiner handles a request to join. If the peer is a member already, it sends the views.
// Otherwise it passes the request to the caller by a notice, and the caller decides.
func (m *Machine) answerJoiner(msg Message) {
	r := *msg.Request
	switch {
	case r.Member.ID != msg.From:
	case m.view.Rank(msg.From) >= 0:
		m.sendBase(msg.From, m.key())
	case r.At == 0:
		m.send(Message{Kind: Status, To: msg.From})
	case !m.history.fresh(m.view, r):
		m.send(Message{Kind: Fence, To: msg.From})
	default:
		m.notice(Notice{Kind: Asked, Request: r})
	}
}

// receiveJoining handles the answers to a newcomer.
func (m *Machine) receiveJoining(msg Message) {
	switch {
	case msg.Kind == Status && m.joiner.at == 0:
		m.joiner.at = msg.Epoch
		m.sendRequest(msg.From)
	case msg.Kind == Status && msg.Epoch > m.joiner.at:
		m.joiner.when = m.tick // this peer may be in that view: ask at once
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
		m.show()
	case in:
		m.history, m.view = h, v
		m.leave(Notice{Kind: Fenced, Peer: msg.From, Why: fmt.Sprintf("was in and is out by %v", v)})
	default:
		return
	}
	m.send(Message{Kind: Status, To: msg.From})
}
