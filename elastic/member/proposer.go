package member

import (
	"fmt"
	"maps"
	"slices"
)

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
//	  ^                |                       |
//	  +-- stepDown, rejected, nothing due -----+
//
// The messages of a ballot are repeated until they are answered. A new ballot is opened only after
// the ballot before was given up.
type proposer struct {
	*membership
	// acceptor is this member's own acceptor. The proposer uses it like the acceptors of the other
	// members, but without messages.
	acceptor *acceptor
	local    *localState
	reports  *peerReports
	quorum   *quorumMonitor
	relay    *relay
	decided  func(d Decision, after View) // ends the present view

	// proposal is the proposal in the present view. A new view begins with an empty proposal.
	proposal
}

// pauses are the conditions under which a proposer opens no ballot, in the present view.
type pauses struct {
	wait        uint64 // no ballot is opened before this tick
	retry       uint64 // no ballot is opened before this tick without new knowledge; set when answers have refuted why
	tries       int    // number of ballots that were rejected, overtaken or refuted
	steppedDown bool   // this proposer has backed off once for a proposer that this member suspects
	contest     contest
}

// contest is a series of ballots of others that a member gives way to.
type contest struct {
	first Ballot
	begin uint64 // tick of the last message of first
	from  ID     // sender of the last message of any of the ballots
	last  uint64 // tick of that message; 0 if there was none
}

// proposal is a proposer's memory for the change of one view.
type proposal struct {
	stale bool // want and why must be recomputed
	// want is the change that is due, as far as this member knows.
	want Change
	why  string // reason of want; "" if none is due

	due   bool   // a change is due
	since uint64 // tick at which the change became due
	pauses
	round uint64 // highest round used here or seen

	stage  stage
	ballot Ballot  // the present ballot
	votes  []bool  // answers in this stage, by rank
	best   Ballot  // while preparing: the highest ballot in promises, in which change was accepted
	change *Change // the change to propose; nil if none was taken over or chosen yet
	// reason is the reason for the change, for the notice.
	reason string
	// signatures of the acceptances of ballot, by rank
	signatures [][]byte
	enough     bool   // there are enough promises
	full       uint64 // tick from which there have been enough promises
	sent       uint64 // tick of the last sending
	times      int    // number of sendings in this stage
}

// reconsider marks the change that is due as outdated, so that it is recomputed before its next
// use. New knowledge also ends the wait after answers that refuted the reason of a ballot.
func (p *proposer) reconsider() { p.stale, p.retry = true, 0 }

// refresh recomputes the change that is due.
func (p *proposer) refresh() {
	if !p.stale {
		return
	}
	p.stale = false
	p.want, p.why = Change{}, ""
	if !p.nothingDue() {
		p.want, p.why = p.facts().dueChange()
	}
	// since is the tick at which a change became due or stopped being due; it stays the same while
	// only the change itself varies.
	if p.due != (p.why != "") {
		p.due, p.since = !p.due, p.tick
	}
}

// nothingDue reports whether it is certain that no change follows from the knowledge here. The
// check saves the pass over all members in facts.
func (p *proposer) nothingDue() bool {
	return len(p.reports.last) == 0 && p.local.report().empty() && (p.view.Voters == len(p.view.Members) || !p.promotable())
}

// promotable reports whether the members without a vote are to get one.
func (p *proposer) promotable() bool {
	return p.reports.promotable(p.view, p.tick, p.cfg.Promote)
}

// facts collects this member's knowledge from which the next change follows.
func (p *proposer) facts() facts {
	n := len(p.view.Members)
	f := facts{view: p.view, here: make([]bool, n), dead: make([]bool, n), leaving: make([]bool, n), promote: p.promotable()}
	for i, o := range p.view.Members {
		f.dead[i] = p.local.dead.has(o.ID)
		f.here[i] = !p.local.suspects.has(o.ID)
	}
	if p.stage == preparing {
		copy(f.here, p.votes)
		f.asking = true
	}
	f.add(&p.history, p.rank, p.local.report())
	for _, rank := range slices.Sorted(maps.Keys(p.reports.last)) { // in rank order, as the order of a map is random
		f.add(&p.history, rank, p.reports.last[rank])
	}
	f.cut = slices.DeleteFunc(f.cut, f.answered)
	return f
}

// begin opens a ballot if a change is due and this member's turn to propose has come. The first
// reachable member of the electorate proposes at once. Each further member waits Patience ticks
// longer than the member before, so that usually only one member proposes.
func (p *proposer) begin() {
	if p.stage != idle || p.quorum.lost {
		return
	}
	p.refresh()
	if !p.due || p.tick < p.retry || p.rank >= len(p.quorum.electorate().dead) || p.tick < p.wait ||
		p.tick < p.since+uint64(len(p.quorum.ahead()))*p.cfg.Patience {
		return
	}
	// The new round exceeds the proposer's own counter, and not only the promised round: a Reject
	// may have reported a round that this member has not promised (I12).
	p.round = max(p.round, p.acceptor.promised.Round) + 1
	p.ballot = Ballot{Round: p.round, Rank: uint32(p.rank)}
	p.acceptor.promise(p.ballot)
	p.best, p.change = p.acceptor.accepted, p.acceptor.change
	p.enough = false
	p.stageBegins(preparing)
	p.carryOn()
}

// stageBegins enters a stage with this member's own vote, and requests the others' votes.
func (p *proposer) stageBegins(s stage) {
	p.stage = s
	p.votes = make([]bool, len(p.view.Members))
	p.votes[p.rank] = true
	p.times = 0
	p.solicit()
}

// solicit sends the message of the present stage to all members that have not answered it. Members
// without a vote are asked for promises, too, because of their reports.
func (p *proposer) solicit() {
	p.sent = p.tick
	p.times++
	msg, n := Message{Kind: Prepare, Ballot: p.ballot}, len(p.view.Members)
	if p.stage == accepting {
		// Only voters accept; the electorate has the first ranks.
		msg = Message{Kind: Accept, Ballot: p.ballot, Change: p.change}
		n = len(p.quorum.electorate().dead)
	}
	var ranks []uint32
	for rank, peer := range p.view.Members[:n] {
		if !p.votes[rank] && !p.local.dead.has(peer.ID) {
			ranks = append(ranks, uint32(rank))
		}
	}
	p.relay.sendAll(msg, p.view, ranks)
}

// proposalTick repeats the message of the stage, with exponential backoff.
func (p *proposer) proposalTick() {
	if p.stage != idle && p.tick >= p.sent+p.cfg.Retry<<min(p.times-1, 4)+p.relay.spreadTime(len(p.votes)) {
		p.solicit()
	}
}

// promised counts a promise (phase 1b). A promise after the Accept was sent changes nothing, as the
// change has been chosen from the earlier promises (I12).
func (p *proposer) promised(rank int, msg Message) {
	if p.stage != preparing || msg.Ballot != p.ballot {
		return
	}
	p.votes[rank] = true
	if msg.Change != nil && p.best.Less(msg.Seen) {
		p.best, p.change = msg.Seen, msg.Change
	}
}

// accepted counts an acceptance.
func (p *proposer) accepted(rank int, msg Message) {
	if p.stage == accepting && msg.Ballot == p.ballot {
		p.votes[rank] = true
		p.signatures[rank] = msg.Signature
	}
}

// rejected gives up the ballot under way after a Reject of it: a voter has promised a higher
// ballot.
func (p *proposer) rejected(msg Message) {
	if p.stage == idle || msg.Ballot != p.ballot {
		return
	}
	p.round = max(p.round, msg.Seen.Round)
	p.overtaken()
}

// overtaken gives up the ballot under way, as another proposer has a higher ballot. The next ballot
// waits for a randomized exponential backoff, so that two proposers do not obstruct each other for
// ever.
func (p *proposer) overtaken() {
	p.stage = idle
	p.tries++
	p.wait = p.tick + p.backOff(p.tries)
}

// stepDown gives up the ballot under way and opens no ballot for a while, because this member has
// promised another proposer's higher ballot. The longer ballots overtake each other, the longer is
// that while. For proposers that this member suspects, stepDown does so only once in a view: in
// that time two parts of a group that can reach each other again withdraw their suspicions. It does
// not do so again, because a suspected proposer may receive no answers and repeat its ballot in
// vain. Later ballots of suspected proposers only count as rejections of a ballot under way here.
// So of two proposers that suspect each other one succeeds in the end.
func (p *proposer) stepDown(b Ballot, from ID) {
	p.round = max(p.round, b.Round)
	switch {
	case p.local.reachable(from) || !p.steppedDown:
		p.steppedDown = p.steppedDown || !p.local.reachable(from)
		p.stage = idle
		p.wait = p.tick + p.cfg.Patience + p.spread(p.cfg.Retry+p.contested(b, from))
	case p.stage != idle:
		p.overtaken()
	}
}

// contested returns for how many ticks ballots have overtaken each other, up to 64 Retry. Over slow
// links each member proposes before it hears of the others' ballots, or while their answers are on
// the way. By this time, which grows until a view is decided, the pauses become longer than a
// ballot takes. A ballot that no other overtook, that was overtaken because its proposer is
// unreachable, or that was long ago, does not count.
func (p *proposer) contested(b Ballot, from ID) uint64 {
	c, longest := &p.contest, p.cfg.Retry<<6
	if c.last == 0 || b == c.first || !p.local.reachable(c.from) || p.tick > c.last+4*longest {
		c.first, c.begin = b, p.tick
	}
	c.from, c.last = from, p.tick
	return min(p.tick-c.begin, longest)
}

// backOff returns a number of ticks that doubles with n, plus a jitter below that number.
func (p *proposer) backOff(n int) uint64 { return p.spread(p.cfg.Retry << min(n, 5)) }

// spread returns ticks plus a jitter below ticks.
func (p *proposer) spread(ticks uint64) uint64 {
	return ticks + jitter(p.cfg.Self.ID, p.round)%ticks
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
func (p *proposer) carryOn() {
	if p.stage == idle {
		return
	}
	e := p.quorum.electorate()
	rule := e.rule(p.votes[:len(e.dead)])
	switch {
	case rule == TooFew:
	case p.stage == accepting && rule.forced() && !p.change.Forced:
		p.stage = idle // the majority was lost after the promises: the next ballot marks the change as forced
	case p.stage == accepting:
		p.decide(rule)
	case p.readyToChoose():
		p.choose(rule)
	}
}

// readyToChoose reports whether to choose the change now, given enough promises: at once if a
// change must be taken over; otherwise when all members that are to stay have sent promises, and
// with them reports, or after Config.Grace. It waits up to Config.Patience while accuserMissing
// returns true: the accuser may be cut off, and the others will report that soon.
func (p *proposer) readyToChoose() bool {
	if !p.enough {
		p.enough, p.full = true, p.tick
	}
	wait := p.cfg.Grace
	if p.accuserMissing() {
		wait = max(wait, p.cfg.Patience)
	}
	// An accepted change of an earlier ballot leaves no choice (Paxos), so no report can matter.
	if p.change != nil || p.tick >= p.full+wait+2*p.relay.spreadTime(len(p.votes)) {
		return true
	}
	p.refresh()
	for rank, peer := range p.view.Members {
		if !p.votes[rank] && !p.local.gone.has(peer.ID) && !p.local.dead.has(peer.ID) {
			return false
		}
	}
	return true
}

// accuserMissing reports whether a member (the accuser) reports another member as unreachable, no
// member reports the accuser, and neither the accuser nor the other member has answered the ballot.
func (p *proposer) accuserMissing() bool {
	silent := func(id ID) bool {
		rank := p.view.Rank(id)
		return rank >= 0 && !p.votes[rank] && !p.local.gone.has(id) && !p.local.dead.has(id)
	}
	for rank, r := range p.reports.last {
		id := p.view.Members[rank].ID
		if silent(id) && !p.local.suspects.has(id) && !p.reports.unreachable(id) && slices.ContainsFunc(r.Unreachable, silent) {
			return true
		}
	}
	return false
}

// choose proposes the change that was accepted in the highest ballot among the promises, or,
// without one, the change that is due. This is rule P2c of Paxos Made Simple, section 2.2: if a
// lower ballot can have decided a change, a quorum has accepted it, each quorum of promises
// contains one of those voters, and so this ballot proposes the same change.
func (p *proposer) choose(rule Rule) {
	p.reason = fmt.Sprintf("taken over from ballot %v", p.best)
	if p.change == nil {
		p.stale = true // the promises have shown which members are present
		p.refresh()
		if !p.due {
			p.refuted()
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
	after, err := p.view.Apply(*p.change)
	if err != nil || !p.acceptor.accept(p.ballot, p.change) {
		p.stage = idle // this member has promised a higher ballot meanwhile
		return
	}
	p.signatures = make([][]byte, len(p.view.Members))
	p.signatures[p.rank] = p.sign(p.ballot, after.hash)
	p.stageBegins(accepting)
	p.carryOn()
}

// refuted gives up a ballot because the answers to it have removed its reason. Without new
// knowledge the next ballot waits for an exponential backoff.
func (p *proposer) refuted() {
	p.stage, p.stale = idle, true
	p.tries++
	p.retry = p.tick + p.backOff(p.tries)
}

// decide ends the present view: the change is decided, even if no other member knows that yet.
func (p *proposer) decide(rule Rule) {
	c, why := *p.change, p.reason
	before := p.view
	after, err := before.Apply(c)
	if err != nil {
		p.stage = idle // cannot happen: acceptors refuse such a change
		return
	}
	p.notice(Notice{Kind: Decided, Before: before, Why: fmt.Sprintf("%v: %s (%v)", c, why, rule)})
	p.decided(Decision{c, p.certificate()}, after)
}

// certificate collects signed acceptances of the present ballot, no more than a majority.
func (p *proposer) certificate() Certificate {
	c := Certificate{Ballot: p.ballot}
	for rank, signature := range p.signatures {
		if len(signature) > 0 && len(c.Votes) < p.quorum.electorate().needed() {
			c.Votes = append(c.Votes, Vote{uint32(rank), signature})
		}
	}
	return c
}
