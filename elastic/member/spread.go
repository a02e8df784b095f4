package member

import "slices"

// Spread carries a message to many members of a view, and their answers back, along a tree, so that
// no member sends to more than a few. A receiver splits the ranks that it has to reach into parts,
// and passes each part to one of its members. Answers are collected on the way back, and equal
// answers are merged.
//
//	author --Branch--> relay --Branch--> ... ; each handles the message within
//	author <--Gather-- relay <--Gather-- ... ; at the latest when its time is over
//
// A tree needs no assumption that single messages do not need. Messages that are lost with a relay
// are requested again along another tree, and members in doubt get their messages directly. A relay
// is a member of the present view, and so believed.
type Spread struct {
	Author ID     // sends the message, and receives the answers
	Seq    uint64 // number of the spread at the author
	In     Hash   // the view to which the ranks refer

	Inner *Message // in a Branch: the author's message
	Ranks []uint32 // in a Branch: the ranks that the receiver has to reach

	Answers []Answer // in a Gather: the answers so far
}

// Answer is an answer to the author that one or more members have given.
type Answer struct {
	Ranks   []uint32
	Message *Message
}

// relaying is a machine's part in trees.
type relaying struct {
	seq  uint64       // of its last own spread
	open []*gathering // trees below this relay that have not answered completely, oldest first
}

// gathering is a tree below a relay that has not answered completely.
type gathering struct {
	spread  Spread   // only Author, Seq and In
	parent  ID       // sender of the Branch, receiver of the Gather
	below   []ID     // members that have not answered
	answers []Answer // answers so far, merged
	due     uint64   // tick at which the answers are sent even if some are missing
}

// maxGatherings bounds the trees in which a machine takes part at a time.
const maxGatherings = 64

// sendAll sends a message to members of a view, by rank: directly, or along a tree if they are more
// than Config.Direct.
func (m *Machine) sendAll(msg Message, v View, ranks []uint32) {
	direct := func(rank uint32) bool { return m.inDoubt(v.Members[rank].ID) }
	if len(ranks) <= m.cfg.Direct {
		direct = func(uint32) bool { return true }
	}
	var rest []uint32
	for _, rank := range ranks {
		if !direct(rank) {
			rest = append(rest, rank)
			continue
		}
		msg.To = v.Members[rank].ID
		m.send(msg)
	}
	if len(rest) == 0 {
		return
	}
	m.relaying.seq++
	msg.To, msg.From, msg.Epoch, msg.View = "", m.cfg.Self.ID, m.view.Epoch, m.view.hash
	m.branch(v, Spread{Author: m.cfg.Self.ID, Seq: m.relaying.seq, In: v.hash, Inner: &msg}, rest)
}

// inDoubt reports whether a member must not be a relay: it may be gone, or be about to go.
func (m *Machine) inDoubt(id ID) bool {
	if m.local.suspects.has(id) || m.local.dead.has(id) || m.view.Rank(id) < 0 {
		return true
	}
	for _, r := range m.reports.last {
		if slices.Contains(r.Unreachable, id) {
			return true
		}
	}
	return false
}

// branch passes a spread to members of v, one for each part of the ranks, and returns these
// members.
func (m *Machine) branch(v View, s Spread, ranks []uint32) (below []ID) {
	for i, parts := 0, min(m.cfg.Fan, len(ranks)); i < parts; i++ {
		part := ranks[i*len(ranks)/parts : (i+1)*len(ranks)/parts]
		// Successive spreads of an author take different members of the part.
		at := int(s.Seq % uint64(len(part)))
		for tries := 1; tries < len(part) && m.local.suspects.has(v.Members[part[at]].ID); tries++ {
			at = (at + 1) % len(part)
		}
		s.Ranks = slices.Delete(slices.Clone(part), at, at+1)
		to, one := v.Members[part[at]].ID, s
		m.send(Message{Kind: Branch, To: to, Spread: &one})
		below = append(below, to)
	}
	return below
}

// spreadTime returns the number of ticks by which the answers of n members may take longer than the
// answer of one.
func (m *Machine) spreadTime(n int) uint64 {
	if n <= m.cfg.Direct {
		return 0
	}
	return m.waitBelow(n)
}

// waitBelow returns the number of ticks that a relay waits for n members below it: two for each
// level of the tree.
func (m *Machine) waitBelow(n int) uint64 {
	levels := uint64(0)
	for ; n > 0; n /= m.cfg.Fan {
		levels++
	}
	return 2 * levels
}

// pass passes a spread on, handles the message within, and collects the answers.
func (m *Machine) pass(msg Message) {
	s := *msg.Spread
	inner := *s.Inner
	inner.From = s.Author
	switch {
	case m.sender(s.Author) != ofView || s.Author == m.cfg.Self.ID:
		return
	case s.In != m.view.hash && m.history.index(s.In) < 0:
		m.ask(msg.From) // the sender of the Branch is closer than the author
		return
	case s.In != m.view.hash:
		m.receive(inner) // the ranks are of another view; the author repeats the message to the others later
		return
	}
	for _, rank := range s.Ranks {
		if int(rank) >= len(m.view.Members) || int(rank) == m.rank {
			return // no member sends such ranks
		}
	}
	g := &gathering{spread: Spread{Author: s.Author, Seq: s.Seq, In: s.In}, parent: msg.From, due: m.tick + m.waitBelow(len(s.Ranks))}
	g.below = m.branch(m.view, s, s.Ranks)
	self, before := uint32(m.rank), len(m.out.Messages)
	m.receive(inner)
	m.out.Messages = slices.DeleteFunc(m.out.Messages, func(o Message) bool {
		if before--; before >= 0 || o.To != s.Author || o.Kind == Gather || o.Kind == Branch {
			return false
		}
		g.add(Answer{[]uint32{self}, &o})
		return true
	})
	m.relaying.open = append(m.relaying.open, g)
	if len(m.relaying.open) > maxGatherings {
		m.relaying.open[0].due = m.tick
	}
	m.answerUp()
}

// gather handles a Gather.
func (m *Machine) gather(msg Message) {
	s := msg.Spread
	if s.Author == m.cfg.Self.ID {
		m.takeAnswers(s)
		return
	}
	i := slices.IndexFunc(m.relaying.open, func(g *gathering) bool {
		return g.spread.Author == s.Author && g.spread.Seq == s.Seq
	})
	if i < 0 {
		// The gathering is over already.
		m.send(Message{Kind: Gather, To: s.Author, Spread: s})
		return
	}
	g := m.relaying.open[i]
	for _, a := range s.Answers {
		g.add(a)
	}
	g.below = slices.DeleteFunc(g.below, func(id ID) bool { return id == msg.From })
	m.answerUp()
}

// takeAnswers handles the answers to a spread of this member.
func (m *Machine) takeAnswers(s *Spread) {
	v := m.view
	if s.In != v.hash {
		v = m.dissemination.before
	}
	if s.In != v.hash {
		return // of an earlier view
	}
	for _, a := range s.Answers {
		// Votes that arrive after the decision: their authors are being sent the new view already.
		late := a.Message.View != m.view.hash && a.Message.View == m.dissemination.before.hash
		for _, rank := range a.Ranks {
			if !late && int(rank) < len(v.Members) {
				one := *a.Message
				one.From, one.To = v.Members[rank].ID, m.cfg.Self.ID
				m.receive(one)
			}
		}
	}
}

// answerUp sends the collected answers of each tree that is complete or due.
func (m *Machine) answerUp() {
	m.relaying.open = slices.DeleteFunc(m.relaying.open, func(g *gathering) bool {
		if len(g.below) > 0 && m.tick < g.due {
			return false
		}
		s, to := g.spread, g.parent
		s.Answers = g.answers
		if m.local.suspects.has(to) {
			to = s.Author
		}
		m.send(Message{Kind: Gather, To: to, Spread: &s})
		return true
	})
}

// add merges an answer with an equal one, or appends it.
func (g *gathering) add(a Answer) {
	for i := range g.answers {
		if o := &g.answers[i]; plain(a.Message) && plain(o.Message) && o.Message.Kind == a.Message.Kind && o.Message.View == a.Message.View &&
			o.Message.Ballot == a.Message.Ballot && o.Message.Seen == a.Message.Seen {
			o.Ranks = append(slices.Clone(o.Ranks), a.Ranks...)
			slices.Sort(o.Ranks)
			o.Ranks = slices.Compact(o.Ranks)
			return
		}
	}
	g.answers = append(g.answers, a)
}

// plain reports whether an answer differs from other answers only in Kind, View and ballots, so
// that equal ones can be merged.
func plain(m *Message) bool {
	return m.Change == nil && len(m.Signature) == 0 && m.Request == nil && m.Base == nil && len(m.Changes) == 0 &&
		(m.Report == nil || m.Report.Seq == 0) && (m.Kind == Status || m.Kind == Promise || m.Kind == Reject || m.Kind == Accepted)
}
