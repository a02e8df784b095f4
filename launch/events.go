package launch

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/printable"
)

// notice handles a notice from the goroutines of a process. Indices from maxPeers on belong to the
// nodes of a program: services and tasks. After the end of a peer some nodes may be due to start or
// stop.
func (r *runner) notice(n notice) {
	switch {
	case n.dying != "":
		r.procs.deliver(r.rendezvous.dying(n.from, n.dying))
	case n.from >= maxPeers && n.msg != nil && n.msg.Program != nil:
		r.program(n.from, *n.msg.Program)
	case n.from >= maxPeers:
		r.graph.notice(n)
	case n.exit != nil:
		r.exited(*n.exit)
		r.graph.runDue(time.Now())
	case n.err != nil:
		r.report.printf("peer %d: %v", n.from, n.err)
	case n.halted:
		r.halted(n.from, n.pid)
	default:
		// The process that sends hello is the peer. The process that the launcher started may be a
		// shell around the peer.
		if n.msg.Hello != nil {
			r.procs.peers[n.from].setPID(n.pid)
		}
		r.message(n.from, *n.msg)
	}
}

// message handles a message from a peer. The decoder has checked the message.
func (r *runner) message(from int, m message) {
	switch {
	case m.Hello != nil:
		// A second hello means that the command has started a further program.
		r.procs.deliver(r.rendezvous.replaceProgram(from))
		r.hello(from, *m.Hello)
	case m.Renew != nil:
		r.hello(from, *m.Renew)
	case m.Event != nil:
		r.event(from, m.Event)
	case m.Leaving:
		r.procs.leaves(from, time.Time{})
	case m.Note != "":
		r.report.note(from, clipNote(m.Note))
	case m.Suspect != "":
		r.suspect(m.Suspect.Short())
	case m.Retry != nil:
		r.peers.repeats.begin(from, *m.Retry, time.Now())
		r.peers.judge(time.Now())
	case m.Scale != nil:
		r.scale(from, *m.Scale)
	case m.Known != nil:
		r.rendezvous.learn(*m.Known)
		r.report.sites(m.Known.Members)
		r.discovery.announce(r.rendezvous.latest, r.rendezvous.hasLocalMember())
	case m.Program != nil:
		r.program(from, *m.Program)
	}
}

// hello handles the message hello or renew of a peer; self is the identity in the message. A peer
// that says hello after the start waits for its admission. The peer gets the members that the
// Discovery has found so far.
func (r *runner) hello(from int, self elastic.Member) {
	if r.rendezvous.started {
		r.joinQueue.add(from, self.ID.Short(), time.Now())
	}
	messages := r.rendezvous.hello(from, self)
	if aborts(messages) {
		r.report.printf("the peers that wait to join are told to end: %s", messages[0].msg.Abort)
	}
	r.procs.deliver(messages)
	if found := r.discovery.latest; found != nil && r.procs.peers[from] != nil {
		r.procs.peers[from].send(message{Found: found})
	}
	r.reformGroup()
}

// onDiscovered passes the members that the Discovery has found to all peers, and stores them for
// later peers.
func (r *runner) onDiscovered(members []elastic.Member) {
	r.discovery.latest = members
	for _, c := range r.procs.peers {
		c.send(message{Found: members})
	}
}

// aborts reports whether the messages say that no group will be formed.
func aborts(messages []peerMessage) bool { return len(messages) > 0 && messages[0].msg.Abort != "" }

// exited records the end of a process and informs the other peers: either that no group can be
// formed, or that this peer is certainly dead.
func (r *runner) exited(e Exit) {
	c := r.procs.peers[e.Index]
	r.procs.remove(e.Index)
	r.joinQueue.remove(e.Index)
	e.Asked = !c.asked.IsZero() && !c.result || e.by != 0 || c.leaves || r.rendezvous.peers[e.Index].released
	e.kicked, e.result, e.left, e.PID = c.kicked, c.result, c.left, c.pid()
	r.outcome.exits = append(r.outcome.exits, e)
	r.peers.repeats.ended(r.rendezvous.shortID(e.Index), e, c.words)
	defer r.peers.judge(e.at)
	if !e.failed() && !e.Asked {
		r.rendezvous.complete(e.Index)
	}
	// Inform the other peers before printing lines: they may wait until this death is certain.
	messages := r.rendezvous.recordExit(e.Index, e.String(), !e.Lost)
	r.procs.deliver(messages)
	if line := c.unsaved(e, r.o.Grace); line != "" {
		r.report.printf("%s", line)
	}
	// If this was the last member, the peers that wait to join form a new group.
	defer r.reformGroup()
	now := time.Now()
	// Nothing is printed about an expected end. The line about a lost member waits for the next
	// view, and lines about other failures wait for their likely cause.
	switch {
	case r.outcome.ending() || e.Asked && r.rendezvous.started:
	case r.outcome.mistake != "" && e.Signal == 0 && !e.Lost: // the job's last line names the mistake
	case aborts(messages):
		r.report.printf("peer %d (pid %d) %v before all had joined; the others are told to end", e.Index, e.PID, e)
	case !e.failed():
		if r.rendezvous.joined(e.Index) {
			r.membership.completed(r.rendezvous.shortID(e.Index), now)
		}
	case r.rendezvous.joined(e.Index):
		r.report.lines(r.membership.ended(r.rendezvous.shortID(e.Index), fmt.Sprintf("%v, pid %d", e, e.PID), now))
		r.peers.crashed(e, now.Sub(c.begun), now)
	default:
		r.failures.add(e, now)
		if r.rendezvous.started {
			r.peers.crashed(e, now.Sub(c.begun), now)
		}
	}
}

// suspect kills the silent or lost member with short ID id if it is a child of this launcher and is
// stopped (SIGSTOP). The kill makes the loss certain, so that the other members need not vote about
// it. It also saves the wait for the stopped process at the end of the job.
func (r *runner) suspect(id string) {
	i := r.rendezvous.index(id)
	c := r.procs.peers[i]
	if c == nil || r.procs.suspended || r.rendezvous.shortID(i) != id {
		return
	}
	if pid, halted := c.suspect(); halted {
		r.halted(i, pid)
	}
}

// halted prints that the stopped process pid of peer i is being killed.
func (r *runner) halted(i, pid int) {
	r.report.printf("%s is stopped and holds up the others: killing it (pid %d)", r.rendezvous.describe(r.rendezvous.shortID(i)), pid)
}

// event passes an event of a peer to the parts of the launcher that use it. The goroutine that
// reads the peer's messages has already sent the event to the event log.
func (r *runner) event(from int, line json.RawMessage) {
	var e event.Event
	if err := json.Unmarshal(line, &e); err != nil {
		r.report.printf("peer %d: %v", from, err)
		return
	}
	now := time.Now()
	if c := r.procs.peers[from]; c != nil {
		c.event(e.Body)
	}
	// All parts see every event; the switch below has the reactions of the launcher itself.
	r.report.shared(r.membership.event(e, now))
	r.report.observe(e, now)
	r.joinQueue.event(e.Body)
	switch b := e.Body.(type) {
	case event.Stall:
		if s := r.stalls.line(from, b, now, r.rendezvous.describe); s != "" {
			r.report.printf("%s", s)
		}
	case event.View:
		r.rendezvous.recordView(b.Members)
	case event.Lost:
		// The members cannot tell a stopped process from a broken network. The launcher can, if the
		// process is its child.
		r.suspect(b.Who)
	case event.Leave:
		switch {
		case b.Reason == "kicked":
			r.kicked(b.Who, now)
		case b.Reason == "asked" && e.Peer == b.Who:
			r.procs.leaves(from, now)
		}
	case event.Done:
		r.rendezvous.complete(from)
		r.outcome.dones = append(r.outcome.dones, doneReport{from, b})
	case event.Dropped:
		r.report.printf("peer %d: %s of its event log dropped: elrun was too slow to take them", from, countLines(b.Events))
	case event.Mistake:
		r.peers.mistaken(printable.Line(b.Reason))
	case event.Quorum:
		r.outcome.gaveUp = r.outcome.gaveUp || b.State == "gave-up"
	}
}

// kicked records that the member with short ID id was put out on request. If the member is a child
// of this launcher, it has to end and is not restarted.
func (r *runner) kicked(id string, now time.Time) {
	i := r.rendezvous.index(id)
	c := r.procs.peers[i]
	if c == nil || c.kicked || r.rendezvous.shortID(i) != id {
		return
	}
	c.kicked = true
	if c.asked.IsZero() {
		c.asked = now // from now on the peer has a grace period to end by itself, and is then killed
	}
	r.report.printf("peer %d (%s) was kicked out of the job, and its ticket is void: it is not started again", i, id)
}
