package member

import "slices"

// Spread carries a message to many members of a view, and their answers back, along a tree, so that
// no member sends to more than a few. A receiver splits the ranks that it has to reach into parts,
// and sends each part to one member of that part. Answers are collected on the way back, and equal
// answers are merged.
//
//	author --Branch--> relay --Branch--> ... ; each handles the message within
//	author <--Gather-- relay <--Gather-- ... ; at the latest when its time is over
//
// A tree assumes no more than single messages do: each message may be lost. If a relay fails the
// author repeats the message along another tree. Unreliable members get their messages directly. A
// relay is a member of the present view, and so believed.
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

// relay sends messages along trees, passes on the messages of other members, and collects the
// answers (a multicast and a convergecast along one tree). It passes the message within a Branch to
// deliver, as if the author had sent that message directly.
type relay struct {
	*membership
	local   *localState
	reports *peerReports
	catchUp *catchUp
	deliver func(Message) // handles a message of a member

	// seq is the sequence number of the last spread that this machine has begun.
	seq  uint64
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

// maxGatherings is the largest number of gatherings of a machine at a time. If there are more, the
// oldest gathering sends the answers that it has collected.
const maxGatherings = 64

// sendAll sends a message to members of a view, by rank: directly, or along a tree if they are more
// than Config.Direct.
func (r *relay) sendAll(msg Message, v View, ranks []uint32) {
	// An unreliable member in a tree would delay the members below it.
	direct := func(rank uint32) bool { return r.unreliable(v.Members[rank].ID) }
	if len(ranks) <= r.cfg.Direct {
		direct = func(uint32) bool { return true }
	}
	var rest []uint32
	for _, rank := range ranks {
		if !direct(rank) {
			rest = append(rest, rank)
			continue
		}
		msg.To = v.Members[rank].ID
		r.send(msg)
	}
	if len(rest) == 0 {
		return
	}
	r.seq++
	msg.To, msg.From, msg.Epoch, msg.View = "", r.cfg.Self.ID, r.view.Epoch, r.view.hash
	r.branch(v, Spread{Author: r.cfg.Self.ID, Seq: r.seq, In: v.hash, Inner: &msg}, rest)
}

// unreliable reports whether a member must not be a relay: it is suspected or dead, or no longer in
// the view.
func (r *relay) unreliable(id ID) bool {
	return !r.local.reachable(id) || r.view.Rank(id) < 0 || r.reports.unreachable(id)
}

// branch passes a spread to members of v, one for each part of the ranks, and returns these
// members.
func (r *relay) branch(v View, s Spread, ranks []uint32) (below []ID) {
	for i, parts := 0, min(r.cfg.Fan, len(ranks)); i < parts; i++ {
		part := ranks[i*len(ranks)/parts : (i+1)*len(ranks)/parts]
		// Successive spreads of an author use different members of the part as relays.
		at := int(s.Seq % uint64(len(part)))
		for tries := 1; tries < len(part) && r.local.suspects.has(v.Members[part[at]].ID); tries++ {
			at = (at + 1) % len(part)
		}
		s.Ranks = slices.Delete(slices.Clone(part), at, at+1)
		to, one := v.Members[part[at]].ID, s
		r.send(Message{Kind: Branch, To: to, Spread: &one})
		below = append(below, to)
	}
	return below
}

// spreadTime returns the number of ticks by which the answers of n members may take longer than the
// answer of one.
func (r *relay) spreadTime(n int) uint64 {
	if n <= r.cfg.Direct {
		return 0
	}
	return r.waitBelow(n)
}

// waitBelow returns the number of ticks that a relay waits for n members below it: two for each
// level of the tree.
func (r *relay) waitBelow(n int) uint64 {
	levels := uint64(0)
	for ; n > 0; n /= r.cfg.Fan {
		levels++
	}
	return 2 * levels
}

// pass passes a spread on, handles the message within, and collects the answers. It moves this
// member's own answer to the author from the output into the gathering.
func (r *relay) pass(msg Message) {
	s := *msg.Spread
	inner := *s.Inner
	inner.From = s.Author
	switch {
	case r.view.Rank(s.Author) < 0 || s.Author == r.cfg.Self.ID:
		return
	case s.In != r.view.hash && r.history.index(s.In) < 0:
		r.catchUp.ask(msg.From) // the sender of the Branch has that view, too
		return
	case s.In != r.view.hash:
		r.deliver(inner) // the ranks are of another view; later the author repeats the message to their members
		return
	}
	for _, rank := range s.Ranks {
		if int(rank) >= len(r.view.Members) || int(rank) == r.rank {
			return // no member sends such ranks
		}
	}
	g := &gathering{spread: Spread{Author: s.Author, Seq: s.Seq, In: s.In}, parent: msg.From, due: r.tick + r.waitBelow(len(s.Ranks))}
	g.below = r.branch(r.view, s, s.Ranks)
	self, before := uint32(r.rank), len(r.out.Messages)
	r.deliver(inner)
	r.out.Messages = slices.DeleteFunc(r.out.Messages, func(o Message) bool {
		if before--; before >= 0 || o.To != s.Author || o.Kind == Gather || o.Kind == Branch {
			return false
		}
		g.add(Answer{[]uint32{self}, &o})
		return true
	})
	r.open = append(r.open, g)
	if len(r.open) > maxGatherings {
		r.open[0].due = r.tick
	}
	r.answerUp()
}

// gather collects the answers of a Gather for the spread of another member.
func (r *relay) gather(msg Message) {
	s := msg.Spread
	i := slices.IndexFunc(r.open, func(g *gathering) bool {
		return g.spread.Author == s.Author && g.spread.Seq == s.Seq
	})
	if i < 0 {
		// The gathering has ended already: these answers go to the author directly.
		r.send(Message{Kind: Gather, To: s.Author, Spread: s})
		return
	}
	g := r.open[i]
	for _, a := range s.Answers {
		g.add(a)
	}
	g.below = slices.DeleteFunc(g.below, func(id ID) bool { return id == msg.From })
	r.answerUp()
}

// answerUp sends the collected answers of each tree that is complete or due. If the parent is
// suspected the answers go to the author, so that the parent's death does not lose them.
func (r *relay) answerUp() {
	r.open = slices.DeleteFunc(r.open, func(g *gathering) bool {
		// due bounds the wait for ranks below that do not answer: the answers so far are passed up.
		if len(g.below) > 0 && r.tick < g.due {
			return false
		}
		s, to := g.spread, g.parent
		s.Answers = g.answers
		if r.local.suspects.has(to) {
			to = s.Author
		}
		r.send(Message{Kind: Gather, To: to, Spread: &s})
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
// that equal answers can be merged.
func plain(m *Message) bool {
	return m.Change == nil && len(m.Signature) == 0 && m.Request == nil && m.Base == nil && len(m.Changes) == 0 &&
		(m.Report == nil || m.Report.Seq == 0) && (m.Kind == Status || m.Kind == Promise || m.Kind == Reject || m.Kind == Accepted)
}
