package launch

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
)

// notice handles a notice from the goroutines of a child.
func (r *runner) notice(n notice) {
	switch {
	case n.from >= maxPeers:
		r.nodeNotice(n)
	case n.exit != nil:
		r.exited(*n.exit)
		r.runDueActions(time.Now())
	case n.err != nil:
		r.printf("peer %d: %v", n.from, n.err)
	case n.halted:
		r.halted(n.from, n.pid)
	default:
		if n.msg.Hello != nil {
			r.children[n.from].setPID(n.pid)
		}
		r.message(n.from, *n.msg)
	}
}

// message handles a message from a peer.
func (r *runner) message(from int, m message) {
	switch {
	case m.Hello != nil:
		// A second hello means a further program of the same command.
		r.deliver(r.rendezvous.replaceProgram(from))
		r.hello(from, *m.Hello)
	case m.Renew != nil:
		r.hello(from, *m.Renew)
	case m.Event != nil:
		r.event(from, m.Event)
	case m.Note != "":
		r.note(from, clipNote(m.Note))
	case m.Suspect != "":
		r.suspect(m.Suspect.Short())
	case m.Scale != nil:
		r.scale(from, *m.Scale)
	case m.Known != nil:
		r.rendezvous.learn(*m.Known)
		if text := formatSites(m.Known.Members); text != "" && !r.sitesReported {
			r.sitesReported = true
			r.printf("%s", text)
		}
		r.announce()
	case m.Program != nil:
		r.program(from, *m.Program)
	}
}

// hello handles the hello or the renew of a peer, which is now self.
func (r *runner) hello(from int, self elastic.Member) {
	if r.rendezvous.started {
		r.joinQueue.add(from, self.ID.Short(), time.Now())
	}
	messages := r.rendezvous.hello(from, self)
	if aborts(messages) {
		r.printf("the peers that wait to join are told to end: %s", messages[0].msg.Abort)
	}
	r.deliver(messages)
	if found := r.discovery.latest; found != nil && r.children[from] != nil {
		r.children[from].send(message{Found: found})
	}
	r.reformGroup()
}

// aborts reports whether the messages say that no group will be formed.
func aborts(messages []peerMessage) bool { return len(messages) > 0 && messages[0].msg.Abort != "" }

// deliver sends messages to the peers that are running.
func (r *runner) deliver(messages []peerMessage) {
	for _, l := range messages {
		if c := r.children[l.to]; c != nil {
			c.send(l.msg)
		}
	}
}

// exited records the end of a process and informs the others: either no group can be formed, or
// this death is certain.
func (r *runner) exited(e Exit) {
	c := r.children[e.Index]
	delete(r.children, e.Index) // its process group ID may be reused
	r.joinQueue.remove(e.Index)
	e.Asked, e.kicked, e.result, e.PID = !c.asked.IsZero() || e.by != 0, c.kicked, c.result, c.pid()
	r.outcome.exits = append(r.outcome.exits, e)
	if !e.failed() && !e.Asked {
		r.rendezvous.complete(e.Index)
	}
	// Tell the other peers before people: they wait for the certain death.
	messages := r.rendezvous.recordExit(e.Index, e.String(), !e.Lost)
	r.deliver(messages)
	defer r.reformGroup()
	now := time.Now()
	// An expected end needs no line, a member's loss waits for the next view, and other failures
	// wait for their likely cause.
	switch {
	case r.outcome.signal != 0 || e.Asked && r.rendezvous.started:
	case aborts(messages):
		r.printf("peer %d (pid %d) %v before all had joined; the others are told to end", e.Index, e.PID, e)
	case !e.failed():
	case r.rendezvous.joined(e.Index):
		r.printLines(r.membership.ended(r.rendezvous.shortID(e.Index), fmt.Sprintf("%v, pid %d", e, e.PID), now))
		r.restart(e, now.Sub(c.begun), now)
	default:
		if len(r.pendingExits) == 0 {
			r.reportAt = now.Add(causePeriod)
		}
		r.pendingExits = append(r.pendingExits, e)
		if r.rendezvous.started {
			r.restart(e, now.Sub(c.begun), now)
		}
	}
}

// restart schedules the restart of a crashed peer, if the options allow it. life is the time from
// start to end of the process.
func (r *runner) restart(e Exit, life time.Duration, now time.Time) {
	if r.o.Restart == 0 || r.membership.done || e.Code == StatusQuorum {
		return
	}
	if len(r.children) == 0 && !r.rendezvous.hasForeignMembers() {
		r.printf("peer %d is not started again: there is no peer left that it could join", e.Index)
		return
	}
	pause, again := r.restarts.decide(e.Index, life)
	switch {
	case !again:
		r.printf("peer %d is not started again: all %d restarts are used up", e.Index, r.o.Restart)
		return
	case pause > 0:
		r.printf("peer %d ended again after %.1f s; it is started again in %v", e.Index, life.Seconds(), pause)
	}
	r.pendingRestarts = append(r.pendingRestarts, pendingRestart{e.Index, e.at, now.Add(pause)})
	r.runDueRestarts(now)
}

// runDueRestarts starts the peers whose restart is due.
func (r *runner) runDueRestarts(now time.Time) {
	var later []pendingRestart
	for _, b := range r.pendingRestarts {
		switch {
		case now.Before(b.at):
			later = append(later, b)
		case r.children[b.index] == nil: // unless scale has started one already
			r.restartNow(b, now)
		}
	}
	r.pendingRestarts = later
}

// restartNow restarts the process of a peer.
func (r *runner) restartNow(b pendingRestart, now time.Time) {
	ms := float64(now.Sub(b.died)) / float64(time.Millisecond)
	line, err := json.Marshal(event.Event{Time: now, Peer: elastic.ID(r.rendezvous.order.Launcher).Short(), Index: b.index,
		Body: event.Restart{MS: ms}})
	if err == nil {
		err = r.startLate(b.index, r.o.Peers, line)
	}
	if err != nil {
		r.printf("peer %d cannot be started again: %v", b.index, err)
		return
	}
	r.printf("peer %d is started again, as a new member (restart %d of %d)", b.index, r.o.Restart-r.restarts.left, r.o.Restart)
}

// startLate starts peer index, one of n, in a running group.
func (r *runner) startLate(index, n int, first []byte) error {
	if err := r.spawn(index, n, first); err != nil {
		return err
	}
	r.rendezvous.expect(index)
	return nil
}

// suspect kills a silent or lost member, named by its short ID, if it is a child of this launcher
// that is stopped. This makes the loss certain, so that the other members need not vote about it,
// and nobody waits for the process at the end.
func (r *runner) suspect(id string) {
	i := r.rendezvous.index(id)
	c := r.children[i]
	if c == nil || r.suspended || r.rendezvous.shortID(i) != id {
		return
	}
	if pid, halted := c.suspect(); halted {
		r.halted(i, pid)
	}
}

// halted reports that a stopped child is being killed.
func (r *runner) halted(i, pid int) {
	r.printf("%s is stopped and holds up the others: killing it (pid %d)", r.describe(r.rendezvous.shortID(i)), pid)
}

// event passes an event to the parts that need it.
func (r *runner) event(from int, line json.RawMessage) {
	var e event.Event
	if err := json.Unmarshal(line, &e); err != nil {
		r.printf("peer %d: %v", from, err)
		return
	}
	now := time.Now()
	// All parts see every event; the switch below has the reactions of the launcher itself.
	r.printShared(r.membership.event(e, now))
	r.progress.observe(e, now)
	r.joinQueue.event(e.Body)
	switch b := e.Body.(type) {
	case event.Stall:
		if s := r.stalls.line(from, b, now, r.describe); s != "" {
			r.printf("%s", s)
		}
	case event.View:
		r.rendezvous.recordView(b.Members)
	case event.Lost:
		r.suspect(b.Who)
	case event.Leave:
		if b.Reason == "kicked" {
			r.kicked(b.Who, now)
		}
	case event.Done:
		r.rendezvous.complete(from)
		r.outcome.dones = append(r.outcome.dones, doneReport{from, b})
		if c := r.children[from]; c != nil {
			c.result = true
		}
	case event.Dropped:
		r.printf("peer %d: %s of its log dropped, which elrun did not take in time", from, countLines(b.Events))
	case event.Quorum:
		r.outcome.gaveUp = r.outcome.gaveUp || b.State == "gave-up"
	}
}

// kicked records that a member, named by its short ID, was put out on request. A child of this
// launcher then has to end and is not restarted.
func (r *runner) kicked(id string, now time.Time) {
	i := r.rendezvous.index(id)
	c := r.children[i]
	if c == nil || c.kicked || r.rendezvous.shortID(i) != id {
		return
	}
	c.kicked = true
	if c.asked.IsZero() {
		c.asked = now // it ends by itself or is killed
	}
	r.printf("peer %d (%s) was kicked out of the job, and its ticket is void: it is not started again", i, id)
}

// formatSites reports that sites are ignored because only some members have one; "" if all or none
// have one.
func formatSites(members []elastic.Member) string {
	without := 0
	for _, m := range members {
		if m.Site == "" {
			without++
		}
	}
	if without == 0 || without == len(members) {
		return ""
	}
	return fmt.Sprintf("--site does not count as long as %s no site: name one for all peers", plural(without, "peer names", "peers name"))
}

// note prints a note of a peer, once for all peers.
func (r *runner) note(from int, text string) {
	if r.printedNotes == nil {
		r.printedNotes = make(map[string]bool)
	}
	if r.printedNotes[text] || len(r.printedNotes) >= maxPrintedNotes {
		return
	}
	r.printedNotes[text] = true
	r.printf("peer %d: %s", from, text)
}

// maxPrintedNotes bounds the number of different notes that a launcher prints.
const maxPrintedNotes = 100
