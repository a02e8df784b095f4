package member

import (
	"fmt"
	"math/bits"
	"slices"
)

// receiveOther takes in a message of another view: it helps a sender that is behind,
// and asks one whose view it does not know (I9).
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

// ask asks a peer what comes after the view here. Once a tick is enough, whoever answers;
// members are asked apart from the others, who could ask to be asked all the time.
func (m *Machine) ask(id ID) {
	if next := &m.asked[m.sender(id)]; *next <= m.tick {
		*next = m.tick + 1
		m.send(Message{Kind: Ask, To: id})
	}
}

// askWithin asks a member of the view what comes after it, as somebody else says that there
// is something and does not prove it: long proofs are with few.
func (m *Machine) askWithin() {
	n := len(m.view.Members)
	for i := range n - 1 {
		to := m.view.Members[(m.rank+1+(int(m.tick)+i)%(n-1))%n].ID
		if !m.own.suspects.has(to) && !m.own.dead.has(to) {
			m.ask(to)
			return
		}
	}
}

// receiveOutside goes on helping those who have not heard of the view that this one
// is out of.
func (m *Machine) receiveOutside(msg Message) {
	if msg.View == m.view.hash {
		m.telling.acknowledged(msg.From)
		return
	}
	if msg.Kind != Chain && m.history.index(msg.View) >= 0 {
		m.sendChain(msg.From, msg.View)
	}
}

// sendChain sends the changes after a view of the history.
func (m *Machine) sendChain(to ID, after Hash) {
	if m.history.index(after) < 0 {
		m.sendBase(to, m.key()) // forgotten by now
		return
	}
	msg := m.chain(after)
	if msg.To = to; m.history.index(after) >= m.history.since(m.cfg.Self.ID) {
		msg.Changes = m.brief(msg.Changes) // who is in that view believes this member
	}
	m.send(msg)
}

// chain returns the Chain of the changes after a view of the history. What does not fit into
// one message is asked for.
func (m *Machine) chain(after Hash) Message {
	i := m.history.index(after)
	return Message{Kind: Chain, After: after, Changes: fitting(m.history.decisions(i), MaxMessage-maxHead)}
}

// sendBase sends the whole history to a peer that has no view, or an unknown one. If
// that does not fit into one message the present view must do.
func (m *Machine) sendBase(to ID, key Key) {
	base, changes := m.history.base, m.brief(m.history.decisions(0))
	if fit := fitting(changes, MaxMessage-maxHead-len(appendView(nil, base))); len(fit) < len(changes) {
		base, changes = m.view, nil
	}
	m.send(Message{Kind: Chain, To: to, Base: &base, Changes: changes, Key: key})
}

// brief returns decisions without proofs of more than Config.Direct votes, which are not told
// to those who believe without: members of the view before, and newcomers. The member that
// decided keeps them for others. Where views can be forced all keep them, as branches that
// meet prove each step.
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

// maxHead is more than the length of a Chain without view and changes.
const maxHead = 1 << 10

// fitting returns as many of the first decisions as fit into room bytes.
func fitting(all []Decision, room int) []Decision {
	for i, d := range all {
		if room -= len(appendDecision(nil, d)); room < 0 {
			return all[:i]
		}
	}
	return all
}

// follow takes in decided changes. What an outsider brings counts as far as the voters of
// the views here, and of those that follow from them, have signed it.
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

// catchUp enters the views to which the decisions lead, one after the other.
func (m *Machine) catchUp(all []Decision) {
	for _, d := range all {
		v, err := m.view.Apply(d.Change)
		if err != nil || m.phase != inside {
			return
		}
		m.move(d, v)
	}
}

// beat tells one member after the other where this one is, so that one that missed
// everything else still hears of it. It costs one message per member and Beat. In a group of
// more than Config.Direct it tells those at distances of 1, 2, 4, 8 and so on to both sides on
// the ring of ranks, so that the members with which it has contact are few.
func (m *Machine) beat() {
	if (m.tick+jitter(m.cfg.Self.ID, 0))%m.cfg.Beat != 0 {
		return
	}
	m.proposer.stale = true // a vote may have become due
	m.beats++
	if len(m.view.Members) > 1 {
		m.send(Message{Kind: Status, To: m.view.Members[m.beatRank()].ID})
	}
	if m.rank >= m.view.Voters {
		m.show()
	}
	m.seekRivals()
}

// show shows a newcomer to a large group to those who are to propose that it gets a vote: the
// first by turns with the others, as it may be stuck.
func (m *Machine) show() {
	if len(m.view.Members) <= m.cfg.Direct {
		return // each is told of all others
	}
	if to := m.ahead(); len(to) > 0 {
		at := m.own.shown % 2 * (1 + m.own.shown/2)
		m.own.shown++
		m.send(Message{Kind: Status, To: to[at%len(to)]})
	}
}

// beatRank returns the rank of the member that is told next.
func (m *Machine) beatRank() int {
	n := len(m.view.Members)
	if n <= m.cfg.Direct {
		return (m.rank + 1 + int(m.beats%uint64(n-1))) % n
	}
	levels := uint64(bits.Len(uint(n / 2))) // distances up to a half of the ring
	d := 1 << (m.beats / 2 % levels)
	if m.beats%2 != 0 {
		d = n - d
	}
	// In the place of one that cannot be reached the next one that can is told.
	for tries := 1; tries < n && m.own.suspects.has(m.view.Members[(m.rank+d)%n].ID); tries++ {
		d = 1 + d%(n-1)
	}
	return (m.rank + d) % n
}

// telling is what the member that decided a view owes the others.
type telling struct {
	before View
	joined idSet // new members; they need the whole view
	open   idSet // have not acknowledged
	at     uint64
	times  int
}

// tell tells all members of the view before and those who joined of the change.
func (m *Machine) tell(before View, c Change) {
	m.telling = telling{before: before}
	for _, p := range before.Members {
		if p.ID != m.cfg.Self.ID && !m.own.dead.has(p.ID) {
			m.telling.open = append(m.telling.open, p.ID)
		}
	}
	slices.Sort(m.telling.open)
	for _, p := range c.Join {
		m.telling.open.add(p.ID)
		m.telling.joined.add(p.ID)
	}
	m.sendOpen()
}

// tellTimes is how often a view is told to one that does not answer. Later it has to
// ask, or be asked.
const tellTimes = 6

// tellAgain repeats what was not acknowledged.
func (m *Machine) tellAgain() {
	t := &m.telling
	if len(t.open) == 0 || m.tick < t.at+m.cfg.Retry<<(t.times-1)+m.spreadTime(len(t.before.Members)) {
		return
	}
	if t.times == tellTimes {
		m.telling = telling{}
		return
	}
	m.sendOpen()
}

func (m *Machine) sendOpen() {
	t := &m.telling
	t.at = m.tick
	t.times++
	if m.history.index(t.before.hash) < 0 {
		m.telling = telling{} // many views ago
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
			m.send(Message{Kind: Status, To: id}) // it asks a contact for the long view, each another one
		default:
			m.sendBase(id, m.key())
		}
	}
}

// acknowledged notes that a peer has shown that it knows the view.
func (t *telling) acknowledged(id ID) { t.open.remove(id) }

// met seeks contact with a peer that is not in the view.
func (m *Machine) met(id ID) {
	switch {
	case m.phase == inside && m.view.Rank(id) < 0:
		m.send(Message{Kind: Status, To: id})
	case m.phase == joining && !slices.Contains(m.joiner.contacts, id):
		m.joiner.contacts = append(m.joiner.contacts, id)
	}
}

// joiner is what a machine knows before its first view.
type joiner struct {
	contacts []ID
	at       uint64 // Request.At; 0 until something was heard
	when     uint64 // tick of the next question
	times    int    // asked
}

// askToJoin asks the next contact when it is time.
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

func (m *Machine) sendRequest(to ID) {
	m.send(Message{Kind: Ask, To: to, Request: &Request{Member: m.cfg.Self, At: m.joiner.at}})
}

// answerJoiner answers a peer that wants to join: with the views if it is a member
// by now, and otherwise by having the caller asked.
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

// receiveJoining takes in the answers to a joiner.
func (m *Machine) receiveJoining(msg Message) {
	switch {
	case msg.Kind == Status && m.joiner.at == 0:
		m.joiner.at = msg.Epoch
		m.sendRequest(msg.From)
	case msg.Kind == Status && msg.Epoch > m.joiner.at:
		m.joiner.when = m.tick // it may be in that view
	case msg.Kind == Fence:
		m.leave(Notice{Kind: Fenced, Peer: msg.From, Why: "has been a member already, or asked too long ago"})
	case msg.Kind == Chain && msg.Base != nil:
		m.adopt(msg)
	}
}

// adopt enters the view at the end of a whole Chain, if this peer is in it. One that
// was in a view on the way and is not at the end will never be in again.
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
