package launch

import (
	"slices"

	"github.com/elrun/elrun/elastic"
)

// When the processes of all members have ended, the newcomers would wait for ever. A launcher that
// has started all peers of the job knows for certain that no member is left. It lets the waiting
// peers form a new first view, from the state that their programs hold (a checkpoint, if they have
// loaded one). If the members have finished the job, the launcher sends finished to the waiting
// peers instead. Only peers that run a further program still form a view, because a shell command
// may run two programs one after the other.

// replaceProgram records that the program of peer i has ended and that a further program of the
// same command is about to say hello. It returns the messages to send now.
func (r *rendezvous) replaceProgram(i int) []peerMessage {
	g := r.peers[i]
	if !r.started || len(g.ids) == 0 {
		return nil
	}
	g.answered = false // the process that would receive messages has ended
	messages := r.announceDeath(g)
	r.peers[i] = &localPeer{further: true}
	return messages
}

// recordView records the members of a view, by the short IDs in a peer's report.
func (r *rendezvous) recordView(members []string) {
	for _, id := range members {
		i, ours := r.names[id]
		if !ours {
			r.foreign = true
			continue
		}
		if r.shortID(i) == id {
			r.peers[i].inView = true
		}
	}
}

// complete marks peer i as complete: it ended with status 0, or it reported the result. If it was a
// member, the job is finished.
func (r *rendezvous) complete(i int) { r.finished = r.finished || r.peers[i].inView }

// noMemberAlive reports whether it is certain that no member is alive. It returns false if the job
// has peers of other launchers.
func (r *rendezvous) noMemberAlive() bool {
	return r.started && len(r.order.Secret) > 0 && !r.foreign && !r.hasForeignMembers() &&
		!slices.ContainsFunc(r.indices(), func(i int) bool { return r.peers[i].inView && !r.peers[i].ended })
}

// reform makes the decision about the waiting peers when no member is alive. It returns the
// messages to send: either that the job is finished, or a new first view. It also returns the
// indices of the peers that form this view; they are nil if no view can be formed yet.
func (r *rendezvous) reform() (messages []peerMessage, begin []int) {
	r.reforming = r.noMemberAlive()
	if !r.reforming {
		return nil, nil
	}
	order := r.order
	order.Sole = true
	missing := false
	// Collect the peers that can form the view, and release the peers of a finished job.
	for _, i := range r.indices() {
		switch g := r.peers[i]; {
		case g.ended:
		case r.finished && !g.further:
			if g.answered && !g.released {
				g.released = true
				messages = append(messages, peerMessage{i, message{Finished: true}})
			}
		case len(g.ids) == 0:
			missing = true
		default:
			order.Peers, begin = append(order.Peers, g.member), append(begin, i)
		}
	}
	// A peer that runs will say hello: wait for it, so that the view has all peers.
	if missing || len(begin) == 0 {
		return messages, nil
	}
	// To the programs, a further program of the same command is another job: its state has nothing
	// to do with the state of the program before.
	if r.peers[begin[0]].further {
		r.order.Job += "+"
	}
	order.Job = r.order.Job
	for _, i := range begin {
		g := r.peers[i]
		g.answered, g.inView = true, true
		messages = append(messages, peerMessage{i, message{Start: &order}})
	}
	// A new group has formed: drop the knowledge of the old group.
	r.reforming, r.finished = false, false
	r.latest = known{Members: order.Peers}
	return messages, begin
}

// reformGroup carries out the decision of rendezvous.reform, and prints it.
func (r *runner) reformGroup() {
	if r.outcome.ending() {
		return
	}
	messages, begin := r.rendezvous.reform()
	if len(begin) > 0 {
		// The lines about the old group come before the line about the new one.
		r.report.lines(r.membership.reset())
		r.report.beginAgain()
		r.outcome.gaveUp = false
		if r.rendezvous.peers[begin[0]].further {
			r.nextProgram()
		} else {
			r.report.printf("no member of the job is left; %s, which waited to join, %s", listPeers(begin),
				map[bool]string{true: "begins anew", false: "begin anew"}[len(begin) == 1])
		}
	}
	r.procs.deliver(messages)
}

// nextProgram reports the result of the program that has ended, and drops this result: the peers
// run a further program, whose result becomes the result of the job.
func (r *runner) nextProgram() {
	r.report.printf("all peers have finished a program and begun another one, which they run as a new group")
	for _, c := range r.procs.peers {
		c.result = false
	}
	if done, _ := agreeDone(r.outcome.dones); done != nil {
		r.report.printf("the result of the finished program: %s", done.Line())
	}
	r.outcome.dones = nil
}

// reset drops the views of a group that has ended, and returns the remaining lines about that
// group.
func (l *membershipLog) reset() []string {
	lines := l.finish()
	l.epoch, l.members, l.newcomers, l.done, l.waiting = 0, nil, nil, false, false
	clear(l.reported)
	return lines
}

// watchOrders registers f for the launcher's orders after its answer to hello: a new first view, or
// the end of the job. Orders that have arrived before are passed to f first. f must not block.
func (a *agent) watchOrders(f func(message)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.onOrder = f
	for len(a.answer) > 0 {
		f(<-a.answer)
	}
}

// deliverOrder passes a launcher's order to the registered function, or keeps it for hello or
// watchOrders. mu is held while the function runs, so that it gets the orders in the order of their
// arrival.
func (a *agent) deliverOrder(m message) {
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

// handleOrder carries out a launcher's order after its answer to hello.
func (p *peer) handleOrder(g *elastic.Group, m message) {
	switch {
	case m.Pass != nil:
		p.passes.put(*m.Pass)
	case m.Finished:
		g.Admin().Finished()
	case m.Start != nil && len(m.Start.Peers) > 0:
		p.mu.Lock()
		id := p.id
		p.latest = known{Members: m.Start.Peers}
		p.mu.Unlock()
		_ = id.joinFirstView(m.Start.Peers) // an invalid address concerns one member only
		g.Admin().Begin(m.Start.Peers)
	}
}
