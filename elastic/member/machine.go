package member

import (
	"fmt"
	"slices"
)

// phase is the stage of a machine's life. It only increases.
type phase uint8

const (
	joining phase = iota // waits for a view that contains this peer
	inside               // in a view
	outside              // was in a view and is out, or can never enter a view
)

// Machine is one peer's part in the agreement on views. It is deterministic and not safe for
// concurrent use: one goroutine owns it.
//
// A Machine consists of parts, each with its own state. The Machine passes messages and events to
// the parts, and alone moves to another view. The parts share membership, in which they only change
// the output. A part that needs another part has it as a field, and no part has the Machine.
type Machine struct {
	*membership

	local   *localState    // this member's own knowledge and requests
	reports *peerReports   // knowledge from the messages of other members of this view
	quorum  *quorumMonitor // which members decide the next view, and whether enough of them can be reached

	acceptor *acceptor // votes
	proposer *proposer // proposes the next view
	reporter *reporter // sends this member's knowledge to the proposer

	relay *relay // passes on messages along trees
	// dissemination sends the view that this member has decided.
	dissemination *dissemination
	catchUp       *catchUp        // helps members that lag behind
	gossip        *gossip         // sends periodic Status messages
	joiner        *joiner         // asks for admission, before the first view
	conflict      *branchConflict // decides which of two branches ends
}

// newMachine returns a machine before its first view. It connects the parts. A part that must cause
// an action of the machine has a function for this action (deliver, decided), so that no part needs
// the whole machine.
func newMachine(cfg Config) *Machine {
	base := &membership{cfg: cfg.withDefaults(), phase: joining, rank: -1}
	local, reports, voter := &localState{membership: base}, &peerReports{}, &acceptor{}
	quorum := &quorumMonitor{membership: base, local: local}
	conflict := &branchConflict{membership: base, local: local}
	catchUp := &catchUp{membership: base, local: local, conflict: conflict}
	m := &Machine{
		membership: base, local: local, reports: reports, quorum: quorum, acceptor: voter, catchUp: catchUp, conflict: conflict,
		reporter: &reporter{membership: base, local: local, quorum: quorum},
		gossip:   &gossip{membership: base, local: local, quorum: quorum},
		joiner:   &joiner{membership: base, contacts: slices.Clone(cfg.Contacts)},
	}
	m.relay = &relay{membership: base, local: local, reports: reports, catchUp: catchUp, deliver: m.receive}
	m.dissemination = &dissemination{membership: base, local: local, relay: m.relay, catchUp: catchUp, conflict: conflict}
	m.proposer = &proposer{membership: base, acceptor: voter, local: local, reports: reports, quorum: quorum, relay: m.relay, decided: m.decided}
	return m
}

// New returns the machine of a member of the first view. It returns an error if cfg.Self is not in
// the view, or if the view is invalid.
func New(cfg Config, first []Member) (*Machine, error) {
	v, err := First(first, cfg.Grants...)
	if err != nil {
		return nil, err
	}
	return NewIn(cfg, v)
}

// NewIn is like New, but takes the view that First has made of the members and Config.Grants: many
// machines in one process then share one view. The error wraps ErrChange if Config.Self is not in
// the view.
func NewIn(cfg Config, v View) (*Machine, error) {
	m := newMachine(cfg)
	v = m.cfg.Views.whole(v)
	m.history.base = v
	if v.Rank(cfg.Self.ID) < 0 {
		return nil, fmt.Errorf("member: %s is not in the first view: %w", cfg.Self.ID, ErrChange)
	}
	m.enter(v)
	return m, nil
}

// NewJoiner returns the machine of a newcomer, which asks Contacts for admission.
func NewJoiner(cfg Config) *Machine { return newMachine(cfg) }

// View returns the present view. Before the first view it has epoch 0. A machine that is out
// returns the first view without itself.
func (m *Machine) View() View { return m.view }

// Out reports whether the machine is no longer a member, or can never become a member.
func (m *Machine) Out() bool { return m.phase == outside }

// Settled reports whether this machine need send nothing more to others: each member to which it
// must send the present view has acknowledged the view or was sent all repetitions, and no tree
// below it still collects answers. A member that leaves should run until it is settled.
func (m *Machine) Settled() bool { return len(m.dissemination.open)+len(m.relay.open) == 0 }

// Idle reports whether nothing but the periodic Status waits for a tick: no request of a newcomer,
// no proposal, no missing quorum, and no dissemination. A newcomer is idle until it repeats its
// request.
func (m *Machine) Idle() bool {
	if m.phase == joining {
		return m.tick+1 < m.joiner.when && m.Settled()
	}
	return m.phase == inside && m.proposer.stage == idle && !m.proposer.due && !m.quorum.lost && m.Settled()
}

// Step handles an event. It does no I/O and does not block: the caller then calls Ready and acts on
// its result.
func (m *Machine) Step(e Event) {
	switch e := e.(type) {
	case Received:
		m.receive(e.Message)
	case Met:
		m.met(e.Peer)
	case Stable:
		m.conflict.stable = max(m.conflict.stable, e.Steps)
	// Sole changes the rule for a quorum, but not the report of this member.
	case Sole:
		m.local.sole = e.On
		m.quorum.invalidate()
	default:
		if m.learn(e) {
			m.changed()
		}
	}
	m.advance()
}

// learn records an event that belongs in this member's report. It returns whether the event is new.
func (m *Machine) learn(e Event) (changed bool) {
	switch e := e.(type) {
	case Suspect:
		return m.local.suspect(e)
	case Trust:
		return m.local.unsuspect(e.Peer)
	case Dead:
		m.local.dead.add(e.Peer)
		return true
	case Admit:
		return m.local.admit(e.Request)
	case Issue:
		return m.local.wish(func(w *wishes) { w.grants = append(w.grants, e.Grant) })
	case Revoke:
		return m.local.wish(func(w *wishes) { w.revoke.add(e.Key) })
	case Kick:
		return m.local.wish(func(w *wishes) { w.kick.add(e.Peer) })
	case Leave:
		m.local.leaving = true
		return true
	case Renew:
		return m.local.askRenewal(e.Epoch)
	}
	return false
}

// Tick advances the time by one tick. The machine reads no clock: repetitions and time limits are
// counted in ticks, so that a test can control them.
func (m *Machine) Tick() {
	m.tick++
	m.relay.answerUp()
	m.dissemination.repeat()
	switch m.phase {
	case joining:
		m.joiner.ask()
	case inside:
		m.proposer.proposalTick()
		if m.gossip.heartbeat() {
			m.proposer.stale = true // the promotion of members without a vote may be due now
			m.conflict.seek()
		}
		m.advance()
	}
}

// Ready returns the output since the last call. The caller owns it.
func (m *Machine) Ready() Ready {
	r := m.out
	m.out = Ready{}
	return r
}

// advance carries out all that is due: notices of the quorum, the next stage of a proposal or a new
// proposal, and the report. Each step may end the membership or the view.
func (m *Machine) advance() {
	if m.phase != inside {
		return
	}
	if m.local.leaving && len(m.view.Members) == 1 && len(m.local.joins) == 0 {
		m.leave(Notice{Kind: Left, Why: "the last member"})
		return
	}
	m.quorum.watch()
	m.proposer.carryOn()
	if m.phase == inside {
		m.proposer.begin()
		m.reporter.report()
	}
}

// changed records new knowledge: a report is due, and the next change and the electorate are
// recomputed.
func (m *Machine) changed() {
	m.local.version++
	m.proposer.reconsider()
	m.quorum.invalidate()
}

// decided ends the present view by a decision of this member, and sends the decision to the others.
func (m *Machine) decided(d Decision, after View) {
	before := m.view
	m.move(d, after)
	m.dissemination.announce(before, d.Change)
}

// enter makes v, which contains this member, the present view. Ballots, reports and proposals
// belong to one view and end with it.
func (m *Machine) enter(v View) {
	m.view, m.rank, m.phase = v, v.Rank(m.cfg.Self.ID), inside
	*m.acceptor = acceptor{}
	m.proposer.proposal = proposal{}
	*m.reports = newPeerReports(len(v.Members), m.rank, m.tick)
	m.local.enter(v, &m.history)
	m.reporter.enter()
	m.gossip.enter()
	m.out.Views = append(m.out.Views, v)
	m.changed()
}

// move enters the view v, to which the decision d leads from the present view, or leaves the group
// if this member is not in v.
func (m *Machine) move(d Decision, v View) {
	c := d.Change
	m.history.push(d, v)
	if v.Rank(m.cfg.Self.ID) >= 0 {
		m.enter(v)
		return
	}
	m.view = v
	// If the change does not say that this member left or was kicked, the others have put it out as
	// lost although it is alive.
	kind := Fenced
	switch {
	case slices.Contains(c.Left, m.cfg.Self.ID):
		kind = Left
	case slices.Contains(c.Kick, m.cfg.Self.ID):
		kind = Kicked
	}
	m.leave(Notice{Kind: kind, Why: fmt.Sprintf("the others agreed on epoch %d without this peer", v.Epoch)})
}

// leave ends the membership with a notice. A membership never begins again: to join once more, the
// process needs a new ID (I2).
func (m *Machine) leave(n Notice) {
	m.phase, m.rank = outside, -1
	m.proposer.proposal = proposal{}
	m.notice(n)
}

// Returns looks for a past member that may come back under another ID and whose ID matches, as far
// as the log reaches. It returns the values for the new Member's By and Was.
func (m *Machine) Returns(match func(ID) bool) (by, was ID, ok bool) {
	return m.history.former(m.view, match)
}
