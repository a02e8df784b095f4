package launch

import (
	"slices"

	"github.com/elrun/elrun/elastic"
)

// When no process is left that was a member, the newcomers would wait for ever. A launcher that
// has started all peers of the job knows this for certain. It lets the waiting peers form the
// first view again, from the state that their programs hold (a checkpoint, if they have loaded
// one). If the members have finished the job, the waiting peers are told so instead. The exception
// is a peer that runs a further program: a shell command may run two programs one after the other.

// again records that the program of peer i has ended and that a further program of the same
// command is about to say hello. It returns the messages to send now.
func (m *meeting) again(i int) []letter {
	g := m.guests[i]
	if !m.started || len(g.ids) == 0 {
		return nil
	}
	g.told = false // the process that would receive messages has ended
	letters := m.tellDead(g)
	m.guests[i] = &guest{further: true}
	return letters
}

// viewed records the members of a view, by the short IDs in a peer's report.
func (m *meeting) viewed(members []string) {
	for _, id := range members {
		i, ours := m.names[id]
		if !ours {
			m.foreign = true
			continue
		}
		if m.shortID(i) == id {
			m.guests[i].member = true
		}
	}
}

// complete records that peer i ended with status 0 or reported the result. If it was a member, the
// job is finished.
func (m *meeting) complete(i int) { m.finished = m.finished || m.guests[i].member }

// deserted reports whether it is certain that no member lives. With peers of other launchers it
// never is.
func (m *meeting) deserted() bool {
	return m.started && len(m.order.Secret) > 0 && !m.foreign && !m.strangers() &&
		!slices.ContainsFunc(m.indices(), func(i int) bool { return m.guests[i].member && !m.guests[i].ended })
}

// anew decides what happens when no member lives. It returns the messages to send, either that the
// job is finished or the first view of the peers that form it, and the indices of these peers; the
// indices are nil if no view can be formed yet.
func (m *meeting) anew() (letters []letter, begin []int) {
	m.gather = m.deserted()
	if !m.gather {
		return nil, nil
	}
	order := m.order
	order.Sole = true
	missing := false
	// Collect the peers that can form the view, and release the peers of a finished job.
	for _, i := range m.indices() {
		switch g := m.guests[i]; {
		case g.ended:
		case m.finished && !g.further:
			if g.told && !g.released {
				g.released = true
				letters = append(letters, letter{i, message{Finished: true}})
			}
		case len(g.ids) == 0:
			missing = true
		default:
			order.Peers, begin = append(order.Peers, g.self), append(begin, i)
		}
	}
	// A peer that runs but has not said hello will: wait for it, so that one view has all.
	if missing || len(begin) == 0 {
		return letters, nil
	}
	for _, i := range begin {
		g := m.guests[i]
		g.told, g.member = true, true
		letters = append(letters, letter{i, message{Start: &order}})
	}
	// The group exists again: what was known of the old one no longer applies.
	m.gather, m.finished = false, false
	m.latest = known{Members: order.Peers}
	return letters, begin
}

// beginAnew carries out the decision of meeting.anew, and tells people.
func (r *runner) beginAnew() {
	if r.out.signal != 0 {
		return
	}
	letters, begin := r.meet.anew()
	if len(begin) > 0 {
		r.sayAll(r.changes.anew())
		r.progress, r.shown = progress{}, 0
		r.out.gaveUp = false
		if r.meet.guests[begin[0]].further {
			r.nextProgram()
		} else {
			r.say("no member of the job is left; %s, which waited to join, %s", listPeers(begin),
				map[bool]string{true: "begins anew", false: "begin anew"}[len(begin) == 1])
		}
	}
	r.deliver(letters)
}

// nextProgram reports the result of the program that has ended and forgets it: the peers run a
// further program, whose result becomes the result of the job.
func (r *runner) nextProgram() {
	r.say("the peers have finished and run a further program, together again")
	for _, c := range r.children {
		c.result = false
	}
	if done, _ := agreeDone(r.out.dones); done != nil {
		r.say("the result before: %s", done.Line())
	}
	r.out.dones = nil
}

// anew forgets the views of a group that has ended, and returns the remaining lines about it.
func (c *changes) anew() []string {
	lines := c.end()
	c.epoch, c.members, c.newcomers, c.done, c.waiting = 0, nil, nil, false, false
	clear(c.said)
	return lines
}

// watchOrders registers f for the launcher's orders after its answer to hello: the first view of
// peers that begin anew, or the end of the job. Orders that have arrived before are passed to f
// first. f must not block.
func (a *agent) watchOrders(f func(message)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.onOrder = f
	for len(a.answer) > 0 {
		f(<-a.answer)
	}
}

// order passes a launcher's order to the registered function, or keeps it for hello or
// watchOrders.
func (a *agent) order(m message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.onOrder != nil {
		a.onOrder(m)
		return
	}
	select {
	case a.answer <- m: // for hello or watchOrders
	default: // more orders than a correct launcher sends: keep the first ones
	}
}

// ordered carries out a launcher's order after its answer to hello.
func (p *peer) ordered(g *elastic.Group, m message) {
	switch {
	case m.Pass != nil:
		p.passed(*m.Pass)
	case m.Finished:
		g.Finished()
	case m.Start != nil && len(m.Start.Peers) > 0:
		p.mu.Lock()
		id := p.id
		p.latest = known{Members: m.Start.Peers}
		p.mu.Unlock()
		_ = id.belong(m.Start.Peers) // an unreadable address is an error of its member alone
		g.Begin(m.Start.Peers)
	}
}
