package member

import "fmt"

// stage is the progress of a proposal.
type stage uint8

const (
	idle      stage = iota // no ballot
	preparing              // collects promises
	accepting              // collects acceptances
)

// proposer is one member's attempt at the change of the present view (single-decree Paxos: Lamport,
// Paxos Made Simple, 2001).
//
//	idle --begin--> preparing --choose--> accepting --decide--> next view
//	  ^                |                     |
//	  +---- yield, rejected, nothing due ----+
//
// A ballot is repeated until it is answered. A new ballot is opened only when another proposer's
// ballot is in the way.
type proposer struct {
	stale bool   // want and why must be recomputed
	want  Change // the change that is due, as far as is known here
	why   string // reason of want; "" if none is due

	due   bool   // a change is due; since is the tick at which it became due
	since uint64 // tick
	wait  uint64 // no ballot is opened before this tick
	retry uint64 // no ballot is opened before this tick without new knowledge; set when answers have refuted why
	tries int    // number of rejected ballots
	round uint64 // highest round used here or seen

	stage  stage
	ballot Ballot  // the present ballot
	votes  []bool  // answers in this stage, by rank
	best   Ballot  // while preparing: the highest ballot in promises, in which change was accepted
	change *Change // the change to propose; nil if none was taken over or chosen yet
	reason string  // of change, for the notice
	// signatures of the acceptances of ballot, by rank
	signatures [][]byte
	enough     bool   // there are enough promises, since the tick full
	full       uint64 // tick
	sent       uint64 // tick of the last sending
	times      int    // number of sendings in this stage
}

// refresh recomputes the change that is due.
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

// begin opens a ballot if a change is due and it is this member's turn. The first reachable member
// of the electorate proposes at once, and each further member Patience ticks later, so that usually
// only one proposes.
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
	// Ballots are numbered by the proposer's own counter, not only by the promised round: a retry
	// may come before this member has handled its own Prepare (I12).
	p.round = max(p.round, m.acceptor.promised.Round) + 1
	p.ballot = Ballot{Round: p.round, Rank: uint32(m.rank)}
	m.acceptor.promise(p.ballot)
	p.best, p.change = m.acceptor.accepted, m.acceptor.change
	p.enough = false
	m.stageBegins(preparing)
	m.carryOn()
}

// stageBegins enters a stage with this member's own vote, and requests the others' votes.
func (m *Machine) stageBegins(s stage) {
	p := &m.proposer
	p.stage = s
	p.votes = make([]bool, len(m.view.Members))
	p.votes[m.rank] = true
	p.times = 0
	m.solicit()
}

// solicit sends the message of the present stage to all members that have not answered it. Members
// without a vote are asked for promises, too, because of their reports.
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
		if !p.votes[rank] && !m.local.dead.has(peer.ID) {
			ranks = append(ranks, uint32(rank))
		}
	}
	m.sendAll(msg, m.view, ranks)
}

// proposalTick repeats the message of the stage, with exponential backoff.
func (m *Machine) proposalTick() {
	p := &m.proposer
	if p.stage != idle && m.tick >= p.sent+m.cfg.Retry<<min(p.times-1, 4)+m.spreadTime(len(p.votes)) {
		m.solicit()
	}
}

// promised counts a promise. A promise after the Accept was sent changes nothing, as the change has
// been chosen from the earlier promises (I12).
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

// rejected gives up a ballot that lies below another proposer's. The next ballot waits for a
// randomized exponential backoff, so that two proposers do not obstruct each other for ever.
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

// yield gives way to another proposer's higher ballot for a while.
func (m *Machine) yield(b Ballot) {
	p := &m.proposer
	p.round = max(p.round, b.Round)
	p.wait = m.tick + m.cfg.Patience + m.backOff(0)
	if p.ballot.Less(b) {
		p.stage = idle
	}
}

// backOff returns a number of ticks that doubles with n, plus a jitter below that number.
func (m *Machine) backOff(n int) uint64 {
	base := m.cfg.Retry << min(n, 5)
	return base + jitter(m.cfg.Self.ID, m.proposer.round)%base
}

// jitter returns a pseudo-random number: FNV-1a over the ID and the round. It differs between
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

// carryOn enters the next stage if the votes suffice.
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
		p.stage = idle // the majority has been lost meanwhile: the next ballot marks the change as forced
	case p.stage == accepting:
		m.decide(rule)
	case m.readyToChoose():
		m.choose(rule)
	}
}

// readyToChoose reports whether to choose the change now, given enough promises: at once if a
// change must be taken over; otherwise when all members that are to stay have sent promises, and
// with them reports, or after Config.Grace.
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
		if !p.votes[rank] && !m.local.gone.has(peer.ID) && !m.local.dead.has(peer.ID) {
			return false
		}
	}
	return true
}

// choose proposes the change that was accepted in the highest ballot among the promises, or,
// without one, the change that is due.
func (m *Machine) choose(rule Rule) {
	p := &m.proposer
	p.reason = fmt.Sprintf("taken over from ballot %v", p.best)
	if p.change == nil {
		p.stale = true // the promises show which members are present
		m.refresh()
		if !p.due {
			m.refuted()
			return
		}
		c := p.want
		p.change, p.reason = &c, p.why
	}
	if rule.forced() && !p.change.Forced {
		c := *p.change // a copy, as other members may share it
		c.Forced = true
		p.change = &c
	}
	after, err := m.view.Apply(*p.change)
	if err != nil || !m.acceptor.accept(p.ballot, p.change) {
		p.stage = idle // promised to another proposer meanwhile
		return
	}
	p.signatures = make([][]byte, len(m.view.Members))
	p.signatures[m.rank] = m.sign(p.ballot, after.hash)
	m.stageBegins(accepting)
	m.carryOn()
}

// refuted gives up a ballot because the answers to it have removed its reason. Without new
// knowledge the next ballot waits for an exponential backoff.
func (m *Machine) refuted() {
	p := &m.proposer
	p.stage, p.stale = idle, true
	p.tries++
	p.retry = m.tick + m.backOff(p.tries)
}

// decide ends the present view: the change is decided, even if no other member knows that yet.
func (m *Machine) decide(rule Rule) {
	c, why := *m.proposer.change, m.proposer.reason
	before := m.view
	after, err := before.Apply(c)
	if err != nil {
		m.proposer.stage = idle // cannot happen: acceptors refuse such a change
		return
	}
	m.notice(Notice{Kind: Decided, Before: before, Why: fmt.Sprintf("%v: %s (%v)", c, why, rule)})
	m.move(Decision{c, m.certificate()}, after)
	m.tell(before, c)
}
