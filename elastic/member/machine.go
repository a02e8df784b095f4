package member

import (
	"fmt"
	"slices"
)

// Config says who a machine is and how patient. Durations are in ticks; a zero means
// the default. Ticks should be about as long as a message takes at worst on a good
// day, 5 to 10 ms; longer ones cost time, never safety.
type Config struct {
	Self Member
	// Any lets any survivors go on (--quorum any).
	Any bool
	// Contacts are members that a joiner asks in turn, and the only ones it believes.
	Contacts []ID
	// Grants are those of the first view, the same at all members.
	Grants []Grant
	// Keys signs and verifies what members of a view decide. Without it decisions reach
	// members only from members of their own view.
	Keys Keys
	// Views keeps one copy of what several machines of a process have in common; nil: each
	// has its own.
	Views *Views

	Retry    uint64 // until an unanswered message is sent again; 4
	Grace    uint64 // to wait for the last promises once there are enough; 3
	Patience uint64 // per place, until the next in line proposes; 16
	Beat     uint64 // between two Status messages; 10
	Promote  uint64 // from the last joiner's first word to its vote; 20

	// Direct is how many members a group may have for each to deal with all others: beyond
	// it messages go along trees (Spread), proofs and views to those who ask; 64.
	Direct int
	Fan    int // branches of a tree; 16
}

// withDefaults fills in what is zero.
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

// phase is where a machine is in its life. It only goes forward.
type phase uint8

const (
	joining phase = iota // waits for a view that has it
	inside               // in a view
	outside              // was in one, and is no more
)

// Machine is one peer's part in deciding the views. It is not safe for concurrent
// use: one goroutine owns it.
type Machine struct {
	cfg   Config
	phase phase
	tick  uint64
	out   Ready

	view    View
	rank    int // in view; -1 outside
	history history

	electing *electorate // nil if it must be made anew
	watched  *electorate // that for which the quorum was last looked at
	acceptor acceptor
	proposer proposer
	own      own
	heard    heard
	telling  telling
	joiner   joiner
	rivalry  rivalry
	relaying relaying
	beats    uint64          // Status messages sent by the clock
	asked    [senders]uint64 // tick from which on the next Ask may be sent to such a peer
	lost     bool            // QuorumLost was said last
	present  int             // and how many voters were present
}

// New returns the machine of a member of the first view. An error says that it is not
// in it, or that nobody could be.
func New(cfg Config, first []Member) (*Machine, error) {
	v, err := First(first, cfg.Grants...)
	if err != nil {
		return nil, err
	}
	return NewIn(cfg, v)
}

// NewIn is New with the view that First has made of the members and Config.Grants.
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

// NewJoiner returns the machine of a peer that asks Contacts to be let in.
func NewJoiner(cfg Config) *Machine {
	return &Machine{cfg: cfg.withDefaults(), phase: joining,
		rank: -1, joiner: joiner{contacts: slices.Clone(cfg.Contacts)}}
}

// View returns the present view; that of a joiner has epoch 0. A machine that is out
// has the first view without it.
func (m *Machine) View() View { return m.view }

// Out reports whether the machine was a member and is no more, or never can be.
func (m *Machine) Out() bool { return m.phase == outside }

// Settled reports whether every member that this machine has to tell of the present
// view has acknowledged it, or has had its chances. A member that leaves should stay
// until then.
func (m *Machine) Settled() bool { return len(m.telling.open)+len(m.relaying.open) == 0 }

// Step takes an event in.
func (m *Machine) Step(e Event) {
	switch e := e.(type) {
	case Received:
		m.receive(e.Message)
	case Suspect:
		m.suspect(e.Peer, true)
		if e.Gone && m.own.suspects.has(e.Peer) {
			m.own.gone.add(e.Peer)
		}
	case Trust:
		m.suspect(e.Peer, false)
		m.own.gone.remove(e.Peer)
	case Dead:
		m.own.dead.add(e.Peer)
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
		m.own.leaving = true
		m.changed()
	case Renew:
		m.renew(e.Epoch)
	case Stable:
		m.rivalry.stable = max(m.rivalry.stable, e.Steps)
	case Sole:
		m.own.sole = e.On
		m.electing = nil
	}
	m.advance()
}

// Tick says that one unit of time has passed.
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

// Ready returns what came up since the last call. The caller owns it.
func (m *Machine) Ready() Ready {
	r := m.out
	m.out = Ready{}
	return r
}

// advance does what has become due: it says that the quorum was lost or is back,
// carries a proposal on, or begins one.
func (m *Machine) advance() {
	if m.phase != inside {
		return
	}
	if m.own.leaving && len(m.view.Members) == 1 && len(m.own.joins) == 0 {
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

// receive takes a message in, as far as its sender is believed (sender.go).
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
		m.telling.acknowledged(msg.From)
		if t == believed {
			m.receivePresent(msg)
		} // any other has learned from this view that it is out
	}
}

// receivePresent takes in a message of a member of the present view about that view.
func (m *Machine) receivePresent(msg Message) {
	rank := m.view.Rank(msg.From)
	m.heard.present(rank, m.tick)
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

// send queues a message of the present view.
func (m *Machine) send(msg Message) {
	msg.From, msg.Epoch, msg.View = m.cfg.Self.ID, m.view.Epoch, m.view.hash
	m.out.Messages = append(m.out.Messages, msg)
}

// notice queues a notice.
func (m *Machine) notice(n Notice) { m.out.Notices = append(m.out.Notices, n) }

// enter makes v the present view, in which this member stands. Ballots, reports and
// proposals belong to one view and end with it.
func (m *Machine) enter(v View) {
	m.view, m.rank, m.phase = v, v.Rank(m.cfg.Self.ID), inside
	m.acceptor = acceptor{}
	m.proposer = proposer{}
	m.heard = newHeard(len(v.Members), m.rank, m.tick)
	m.own.enter(v, &m.history)
	m.out.Views = append(m.out.Views, v)
	m.changed()
}

// move follows the present view by d, which was decided and leads to v.
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

// leave ends the membership.
func (m *Machine) leave(n Notice) {
	m.phase, m.rank = outside, -1
	m.proposer = proposer{}
	m.notice(n)
}
