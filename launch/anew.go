package launch

import (
	"slices"

	"github.com/elrun/elrun/elastic"
)

// When no process lives that has been a member, those that want to join wait for nobody.
// The launcher knows that for certain, as it has started all peers: it lets those that wait
// form the first view anew, from what their programs hold, a checkpoint if they have loaded
// one. Where the members have finished the job those that wait are told that, but for
// peers that run a further program, as the command of a shell does that runs two.

// again notes that peer i runs a further program, which is about to say hello: the one
// before has ended. It returns what to send now.
func (m *meeting) again(i int) []letter {
	g := m.guests[i]
	if !m.started || len(g.ids) == 0 {
		return nil
	}
	g.told = false // nobody is there to be told
	letters := m.tellDead(g)
	m.guests[i] = &guest{further: true}
	return letters
}

// viewed notes the members of a view by their short IDs, as a peer has told them.
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

// complete notes that peer i has ended well, or has the result: if it was a member the job
// is finished.
func (m *meeting) complete(i int) { m.finished = m.finished || m.guests[i].member }

// deserted reports whether it is certain that no member lives.
func (m *meeting) deserted() bool {
	return m.started && len(m.order.Secret) > 0 && !m.foreign && !m.strangers() &&
		!slices.ContainsFunc(m.indices(), func(i int) bool { return m.guests[i].member && !m.guests[i].ended })
}

// anew does what is due when no member lives, and returns what to send: that the job is
// finished, or the first view of those that are to form it. They are also returned, nil
// where there is no view yet.
func (m *meeting) anew() (letters []letter, begin []int) {
	m.gather = m.deserted()
	if !m.gather {
		return nil, nil
	}
	order := m.order
	order.Sole = true
	missing := false
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
	if missing || len(begin) == 0 {
		return letters, nil
	}
	for _, i := range begin {
		g := m.guests[i]
		g.told, g.member = true, true
		letters = append(letters, letter{i, message{Start: &order}})
	}
	m.gather, m.finished = false, false
	m.latest = known{Members: order.Peers}
	return letters, begin
}

// beginAnew does what is due when no member lives.
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

// nextProgram puts the result of a program away, as the peers run a further one, whose
// result will be that of the job.
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

// anew forgets the views of a group that is gone, and returns the lines that are left to
// be said about it.
func (c *changes) anew() []string {
	lines := c.end()
	c.epoch, c.members, c.newcomers, c.done, c.waiting = 0, nil, nil, false, false
	clear(c.said)
	return lines
}

// watchOrders lets f know of what the launcher says after its answer to hello: the first
// view of those that begin anew, or that the job is finished. f must not block.
func (a *agent) watchOrders(f func(message)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.onOrder = f
	for len(a.answer) > 0 {
		f(<-a.answer)
	}
}

// order hands on what the launcher says after its answer to hello.
func (a *agent) order(m message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.onOrder != nil {
		a.onOrder(m)
		return
	}
	select {
	case a.answer <- m: // the answer, or for watchOrders
	default: // a launcher's mistake; the first one holds
	}
}

// ordered does what the launcher says after its answer to hello.
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
		_ = id.belong(m.Start.Peers) // an address that cannot be read is its member's mistake
		g.Begin(m.Start.Peers)
	}
}
