package member

import "fmt"

// stage is how far a proposal has come.
type stage uint8

const (
	idle      stage = iota
	preparing       // collects promises
	accepting       // collects acceptances
)

// proposer is one member's attempt at the change of the present view.
//
//	idle --begin--> preparing --choose--> accepting --decide--> next view
//	  ^                |                     |
//	  +---- yield, rejected, nothing due ----+
//
// A ballot is sent again and again until it is answered; a new one is begun only
// when another proposer's is in the way.
type proposer struct {
	stale bool   // want and why must be computed again
	want  Change // due according to what is known here
	why   string // "" if nothing is due

	due   bool   // something is due, since tick
	since uint64 // tick
	wait  uint64 // no ballot is begun before this tick
	retry uint64 // nor before this one, unless something new is known: answers have refuted why
	tries int    // ballots that were rejected
	round uint64 // highest that was used or heard of here

	stage  stage
	ballot Ballot
	votes  []bool // of this stage, by rank
	best   Ballot // that of change, while preparing
	change *Change
	reason string
	// signatures under the acceptances of ballot, by rank
	signatures [][]byte
	enough     bool   // there are enough promises, since tick
	full       uint64 // tick
	sent       uint64 // tick of the last sending
	times      int    // sendings of this stage
}

// refresh computes what is due.
func (m *Machine) refresh() {
	p := &m.proposer
	if !p.stale {
		return
	}
	p.stale = false
	p.want, p.why = Change{}, ""
	if !m.content() {
		p.want, p.why = next(m.facts())
	}
	if p.due != (p.why != "") {
		p.due, p.since = !p.due, m.tick
	}
}

// begin opens a ballot if something is due and it is this member's turn. The first
// of the electorate that can be reached begins at once, the others in their order
// when nothing has come of it, so that as a rule only one proposes.
func (m *Machine) begin() {
	p := &m.proposer
	if p.stage != idle || m.lost {
		return
	}
	m.refresh()
	if !p.due || m.tick < p.retry || m.rank >= len(m.electorate().dead) || m.tick < p.wait ||
		m.tick < p.since+uint64(len(m.ahead()))*m.cfg.Patience {
		return
	}
	// The counter alone numbers the ballots, not what this member has promised: a
	// retry may come before it has heard its own Prepare (I12).
	p.round = max(p.round, m.acceptor.promised.Round) + 1
	p.ballot = Ballot{Round: p.round, Rank: uint32(m.rank)}
	m.acceptor.promise(p.ballot)
	p.best, p.change = m.acceptor.accepted, m.acceptor.change
	p.enough = false
	m.stageBegins(preparing)
	m.carryOn()
}

// stageBegins enters a stage with this member's own vote and asks for the others'.
func (m *Machine) stageBegins(s stage) {
	p := &m.proposer
	p.stage = s
	p.votes = make([]bool, len(m.view.Members))
	p.votes[m.rank] = true
	p.times = 0
	m.solicit()
}

// solicit sends the message of the present stage to all that have not answered it.
// Those without a vote are asked for promises, too, for the reports in them.
func (m *Machine) solicit() {
	p := &m.proposer
	p.sent = m.tick
	p.times++
	msg, n := Message{Kind: Prepare, Ballot: p.ballot}, len(m.view.Members)
	if p.stage == accepting {
		msg = Message{Kind: Accept, Ballot: p.ballot, Change: p.change}
		n = len(m.electorate().dead)
	}
	var ranks []uint32
	for rank, peer := range m.view.Members[:n] {
		if !p.votes[rank] && !m.own.dead.has(peer.ID) {
			ranks = append(ranks, uint32(rank))
		}
	}
	m.sendAll(msg, m.view, ranks)
}

// proposalTick sends again what was not answered, ever less often.
func (m *Machine) proposalTick() {
	p := &m.proposer
	if p.stage != idle && m.tick >= p.sent+m.cfg.Retry<<min(p.times-1, 4)+m.spreadTime(len(p.votes)) {
		m.solicit()
	}
}

// promised counts a promise. One that comes after Accept went out changes nothing:
// the change was chosen from those that were there (I12).
func (m *Machine) promised(rank int, msg Message) {
	p := &m.proposer
	if p.stage != preparing || msg.Ballot != p.ballot {
		return
	}
	p.votes[rank] = true
	if msg.Change != nil && p.best.Less(msg.Seen) {
		p.best, p.change = msg.Seen, msg.Change
	}
}

// accepted counts an acceptance.
func (m *Machine) accepted(rank int, msg Message) {
	if p := &m.proposer; p.stage == accepting && msg.Ballot == p.ballot {
		p.votes[rank] = true
		p.signatures[rank] = msg.Signature
	}
}

// rejected gives a ballot up that another's is in the way of, for a time that grows
// and differs from member to member, so that two do not go on like this for ever.
func (m *Machine) rejected(msg Message) {
	p := &m.proposer
	if p.stage == idle || msg.Ballot != p.ballot {
		return
	}
	p.stage = idle
	p.round = max(p.round, msg.Seen.Round)
	p.tries++
	p.wait = m.tick + m.backOff(p.tries)
}

// yield leaves the field to another proposer's higher ballot for a while.
func (m *Machine) yield(b Ballot) {
	p := &m.proposer
	p.round = max(p.round, b.Round)
	p.wait = m.tick + m.cfg.Patience + m.backOff(0)
	if p.ballot.Less(b) {
		p.stage = idle
	}
}

// backOff returns a number of ticks that doubles with n, plus up to as many again.
func (m *Machine) backOff(n int) uint64 {
	base := m.cfg.Retry << min(n, 5)
	return base + jitter(m.cfg.Self.ID, m.proposer.round)%base
}

// jitter scatters numbers: FNV-1a over the ID and the round. It differs between
// members and rounds, and is the same in every replay.
func jitter(id ID, round uint64) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range []byte(id) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	for range 8 {
		h = (h ^ round&0xff) * 1099511628211
		round >>= 8
	}
	return h ^ h>>32
}

// carryOn goes on to the next stage when the votes are enough.
func (m *Machine) carryOn() {
	p := &m.proposer
	if p.stage == idle {
		return
	}
	e := m.electorate()
	rule := e.rule(p.votes[:len(e.dead)])
	switch {
	case rule == TooFew:
	case p.stage == accepting && rule.forced() && !p.change.Forced:
		p.stage = idle // a majority is gone meanwhile: the next ballot marks the change
	case p.stage == accepting:
		m.decide(rule)
	case m.readyToChoose():
		m.choose(rule)
	}
}

// readyToChoose reports whether it is time to choose the change, given enough
// promises: at once if one must be taken over, otherwise when all that are to stay
// have promised and so reported, or have had their time.
func (m *Machine) readyToChoose() bool {
	p := &m.proposer
	if !p.enough {
		p.enough, p.full = true, m.tick
	}
	if p.change != nil || m.tick >= p.full+m.cfg.Grace+2*m.spreadTime(len(p.votes)) {
		return true
	}
	m.refresh()
	for rank, peer := range m.view.Members {
		if !p.votes[rank] && !m.own.gone.has(peer.ID) && !m.own.dead.has(peer.ID) {
			return false
		}
	}
	return true
}

// choose proposes the change that was accepted in the highest ballot promised away,
// or if there is none what is due.
func (m *Machine) choose(rule Rule) {
	p := &m.proposer
	p.reason = fmt.Sprintf("taken over from ballot %v", p.best)
	if p.change == nil {
		p.stale = true // by now it is known who is here
		m.refresh()
		if !p.due {
			m.refuted()
			return
		}
		c := p.want
		p.change, p.reason = &c, p.why
	}
	if rule.forced() && !p.change.Forced {
		c := *p.change // which others may have
		c.Forced = true
		p.change = &c
	}
	after, err := m.view.Apply(*p.change)
	if err != nil || !m.acceptor.accept(p.ballot, p.change) {
		p.stage = idle // promised to another in the meantime
		return
	}
	p.signatures = make([][]byte, len(m.view.Members))
	p.signatures[m.rank] = m.sign(p.ballot, after.hash)
	m.stageBegins(accepting)
	m.carryOn()
}

// refuted gives a ballot up as the answers to it have taken back what it was begun for.
// Until something new is known none is begun for the same reason, for a time that doubles.
func (m *Machine) refuted() {
	p := &m.proposer
	p.stage, p.stale = idle, true
	p.tries++
	p.retry = m.tick + m.backOff(p.tries)
}

// decide ends the present view: the change is chosen, whoever else knows of it.
func (m *Machine) decide(rule Rule) {
	c, why := *m.proposer.change, m.proposer.reason
	before := m.view
	after, err := before.Apply(c)
	if err != nil {
		m.proposer.stage = idle // cannot be: acceptors refuse such a change
		return
	}
	m.notice(Notice{Kind: Decided, Why: fmt.Sprintf("%v: %s (%v)", c, why, rule)})
	m.move(Decision{c, m.certificate()}, after)
	m.tell(before, c)
}
