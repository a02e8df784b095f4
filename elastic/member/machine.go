package member

import (
	"fmt"
	"slices"
)

// Config is the identity and the timing of a machine. Durations are in ticks; zero means the
// default. A tick should be about the longest delay of a message in good conditions, 5 to 10 ms.
// Longer ticks cost time, never safety.
type Config struct {
	Self Member
	// Any lets any survivors go on (--quorum any).
	Any bool
	// Contacts are members that a newcomer asks in turn. It believes no other peers.
	Contacts []ID
	// Grants are the grants of the first view, the same at all members.
	Grants []Grant
	// Keys signs and verifies the decisions of a view's members. Without Keys a member accepts
	// decisions only from members of its own view.
	Keys Keys
	// Views holds one copy of the views that several machines of a process have in common. If it is
	// nil each machine has its own.
	Views *Views

	Retry    uint64 // until an unanswered message is sent again; default 4
	Grace    uint64 // wait for the last promises once there are enough; default 3
	Patience uint64 // per place in line, until the next member proposes; default 16
	Beat     uint64 // between two Status messages; default 10
	Promote  uint64 // from the first message of the last newcomer to its vote; default 20

	// Direct is the number of members up to which each member exchanges messages with all others;
	// default 64. In larger groups messages go along trees (Spread), and proofs and whole views are
	// sent on request.
	Direct int
	Fan    int // fan-out of a tree; default 16
}

// withDefaults returns c with defaults in place of zeros.
func (c Config) withDefaults() Config {
	for _, d := range []struct {
		field *uint64
		value uint64
	}{{&c.Retry, 4}, {&c.Grace, 3}, {&c.Patience, 16}, {&c.Beat, 10}, {&c.Promote, 20}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Direct == 0 {
		c.Direct = 64
	}
	if c.Fan < 2 {
		c.Fan = 16
	}
	if c.Views == nil {
		c.Views = NewViews(ownViews)
	}
	return c
}

// phase is the stage of a machine's life. It only increases.
type phase uint8

const (
	joining phase = iota // waits for a view that contains it
	inside               // in a view
	outside              // was in a view and is out, or can never be in one
)

// Machine is one peer's part in the agreement on views. It is deterministic and not safe for
// concurrent use: one goroutine owns it.
type Machine struct {
	cfg   Config
	phase phase
	tick  uint64 // number of ticks so far
	out   Ready  // output since the last Ready

	view    View    // the present view
	rank    int     // in view; -1 while not inside
	history history // recent part of the lineage, up to view

	electing      *electorate     // cached; nil if it must be computed anew
	watched       *electorate     // the electorate for which the quorum was last checked
	acceptor      acceptor        // as a voter
	proposer      proposer        // as a proposer
	local         localState      // its own knowledge and requests
	reports       peerReports     // knowledge from others in this view
	dissemination dissemination   // dissemination of the view that it decided
	joiner        joiner          // before its first view
	conflict      branchConflict  // for a meeting with another branch
	relaying      relaying        // its part in trees
	beats         uint64          // number of Status messages sent by beat
	asked         [senders]uint64 // by class of peer, the first tick at which the next Ask may be sent
	lost          bool            // the last notice of the quorum was QuorumLost
	present       int             // number of voters present at that notice
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

// NewIn is like New, but takes the view that First has made of the members and Config.Grants.
func NewIn(cfg Config, v View) (*Machine, error) {
	m := &Machine{cfg: cfg.withDefaults(), phase: inside}
	v = m.cfg.Views.whole(v)
	m.history.base = v
	if v.Rank(cfg.Self.ID) < 0 {
		return nil, fmt.Errorf("member: %s is not in the first view: %w", cfg.Self.ID, ErrChange)
	}
	m.enter(v)
	return m, nil
}

// NewJoiner returns the machine of a newcomer, which asks Contacts for admission.
func NewJoiner(cfg Config) *Machine {
	return &Machine{cfg: cfg.withDefaults(), phase: joining,
		rank: -1, joiner: joiner{contacts: slices.Clone(cfg.Contacts)}}
}

// View returns the present view. Before the first view it has epoch 0. A machine that is out
// returns the first view without itself.
func (m *Machine) View() View { return m.view }

// Out reports whether the machine was a member and is no more, or can never be one.
func (m *Machine) Out() bool { return m.phase == outside }

// Settled reports whether all members to which this machine must send the present view have
// acknowledged it, or have been sent all repetitions. A member that leaves should run until then.
func (m *Machine) Settled() bool { return len(m.dissemination.open)+len(m.relaying.open) == 0 }

// Idle reports whether nothing but the periodic Status waits for a tick: no request of a newcomer,
// no proposal, and no dissemination.
func (m *Machine) Idle() bool {
	return m.phase == inside && m.proposer.stage == idle && !m.proposer.due && !m.lost && m.Settled()
}

// Step handles an event.
func (m *Machine) Step(e Event) {
	switch e := e.(type) {
	case Received:
		m.receive(e.Message)
	case Suspect:
		m.suspect(e.Peer, true)
		if e.Gone && m.local.suspects.has(e.Peer) {
			m.local.gone.add(e.Peer)
		}
	case Trust:
		m.suspect(e.Peer, false)
		m.local.gone.remove(e.Peer)
	case Dead:
		m.local.dead.add(e.Peer)
		m.changed()
	case Met:
		m.met(e.Peer)
	case Admit:
		m.admit(e.Request)
	case Issue:
		m.wish(func(w *wishes) { w.grants = append(w.grants, e.Grant) })
	case Revoke:
		m.wish(func(w *wishes) { w.revoke.add(e.Key) })
	case Kick:
		m.wish(func(w *wishes) { w.kick.add(e.Peer) })
	case Leave:
		m.local.leaving = true
		m.changed()
	case Renew:
		m.renew(e.Epoch)
	case Stable:
		m.conflict.stable = max(m.conflict.stable, e.Steps)
	case Sole:
		m.local.sole = e.On
		m.electing = nil
	}
	m.advance()
}

// Tick advances the time by one tick.
func (m *Machine) Tick() {
	m.tick++
	m.answerUp()
	m.tellAgain()
	switch m.phase {
	case joining:
		m.askToJoin()
	case inside:
		m.proposalTick()
		m.beat()
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
// one, and the report.
func (m *Machine) advance() {
	if m.phase != inside {
		return
	}
	if m.local.leaving && len(m.view.Members) == 1 && len(m.local.joins) == 0 {
		m.leave(Notice{Kind: Left, Why: "the last member"})
		return
	}
	m.watchQuorum()
	m.carryOn()
	if m.phase == inside {
		m.begin()
		m.reportOn()
	}
}

// receive handles a message, as far as its sender is believed (sender.go).
func (m *Machine) receive(msg Message) {
	t, _ := treatmentOf(msg.Kind, m.sender(msg.From))
	switch {
	case t == refused || msg.From == m.cfg.Self.ID:
		return
	case msg.Kind == Gather:
		m.gather(msg)
	case msg.Kind == Branch && m.phase == inside:
		m.pass(msg)
	case m.phase == joining:
		m.receiveJoining(msg)
	case m.phase == outside:
		m.receiveOutside(msg)
	case msg.Kind == Chain:
		m.follow(msg, t)
	case msg.Kind == Ask && msg.Request != nil:
		m.answerJoiner(msg)
	case msg.View != m.view.hash:
		m.receiveOther(msg)
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
		m.promised(rank, msg)
	case Accepted:
		m.accepted(rank, msg)
	case Reject:
		m.rejected(msg)
	}
}

// send queues a message with this member's view.
func (m *Machine) send(msg Message) {
	msg.From, msg.Epoch, msg.View = m.cfg.Self.ID, m.view.Epoch, m.view.hash
	m.out.Messages = append(m.out.Messages, msg)
}

// notice queues a notice.
func (m *Machine) notice(n Notice) { m.out.Notices = append(m.out.Notices, n) }

// enter makes v, which contains this member, the present view. Ballots, reports and proposals
// belong to one view and end with it.
func (m *Machine) enter(v View) {
	m.view, m.rank, m.phase = v, v.Rank(m.cfg.Self.ID), inside
	m.acceptor = acceptor{}
	m.proposer = proposer{}
	m.reports = newPeerReports(len(v.Members), m.rank, m.tick)
	m.local.enter(v, &m.history)
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
	kind := Fenced
	switch {
	case slices.Contains(c.Left, m.cfg.Self.ID):
		kind = Left
	case slices.Contains(c.Kick, m.cfg.Self.ID):
		kind = Kicked
	}
	m.leave(Notice{Kind: kind, Why: fmt.Sprintf("%v leads to %v", c, v)})
}

// leave ends the membership with a notice.
func (m *Machine) leave(n Notice) {
	m.phase, m.rank = outside, -1
	m.proposer = proposer{}
	m.notice(n)
}
