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
		r.advance(time.Now())
	case n.err != nil:
		r.say("peer %d: %v", n.from, n.err)
	case n.halted:
		r.halted(n.from, n.pid)
	default:
		if n.msg.Hello != nil {
			r.children[n.from].met(n.pid)
		}
		r.message(n.from, *n.msg)
	}
}

// message handles a message from a peer.
func (r *runner) message(from int, m message) {
	switch {
	case m.Hello != nil:
		// A second hello means a further program of the same command.
		r.deliver(r.meet.again(from))
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
		r.meet.learn(*m.Known)
		if text := wordSites(m.Known.Members); text != "" && !r.sitesTold {
			r.sitesTold = true
			r.say("%s", text)
		}
		r.announce()
	case m.Program != nil:
		r.program(from, *m.Program)
	}
}

// hello handles the hello or the renew of a peer, which is now self.
func (r *runner) hello(from int, self elastic.Member) {
	if r.meet.started {
		r.lobby.enter(from, self.ID.Short(), time.Now())
	}
	letters := r.meet.hello(from, self)
	if aborts(letters) {
		r.say("the peers that wait to join are told to end: %s", letters[0].msg.Abort)
	}
	r.deliver(letters)
	if found := r.discoveries.latest; found != nil && r.children[from] != nil {
		r.children[from].send(message{Found: found})
	}
	r.beginAnew()
}

// aborts reports whether the letters say that no group will be formed.
func aborts(letters []letter) bool { return len(letters) > 0 && letters[0].msg.Abort != "" }

// deliver sends letters to the peers that are running.
func (r *runner) deliver(letters []letter) {
	for _, l := range letters {
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
	r.lobby.leave(e.Index)
	e.Asked, e.kicked, e.result, e.PID = !c.asked.IsZero() || e.by != 0, c.kicked, c.result, c.pid()
	r.out.exits = append(r.out.exits, e)
	if !e.failed() && !e.Asked {
		r.meet.complete(e.Index)
	}
	// Tell the other peers before people: they wait for the certain death.
	letters := r.meet.exit(e.Index, e.String(), !e.Lost)
	r.deliver(letters)
	defer r.beginAnew()
	now := time.Now()
	// An expected end needs no line, a member's loss waits for the next view, and other failures
	// wait for their likely cause.
	switch {
	case r.out.signal != 0 || e.Asked && r.meet.started:
	case aborts(letters):
		r.say("peer %d (pid %d) %v before all had joined; the others are told to end", e.Index, e.PID, e)
	case !e.failed():
	case r.meet.joined(e.Index):
		r.sayAll(r.changes.ended(r.meet.shortID(e.Index), fmt.Sprintf("%v, pid %d", e, e.PID), now))
		r.restart(e, now.Sub(c.begun), now)
	default:
		if len(r.untold) == 0 {
			r.tellAt = now.Add(causePeriod)
		}
		r.untold = append(r.untold, e)
		if r.meet.started {
			r.restart(e, now.Sub(c.begun), now)
		}
	}
}

// restart schedules the restart of a crashed peer, if the options allow it. life is the time from
// start to end of the process.
func (r *runner) restart(e Exit, life time.Duration, now time.Time) {
	if r.o.Restart == 0 || r.changes.done || e.Code == StatusQuorum {
		return
	}
	if len(r.children) == 0 && !r.meet.strangers() {
		r.say("peer %d is not started again: there is no peer left that it could join", e.Index)
		return
	}
	pause, again := r.restarts.decide(e.Index, life)
	switch {
	case !again:
		r.say("peer %d is not started again: all %d restarts are used up", e.Index, r.o.Restart)
		return
	case pause > 0:
		r.say("peer %d ended again after %.1f s; it is started again in %v", e.Index, life.Seconds(), pause)
	}
	r.comebacks = append(r.comebacks, comeback{e.Index, e.at, now.Add(pause)})
	r.comeBack(now)
}

// comeBack starts the peers whose restart is due.
func (r *runner) comeBack(now time.Time) {
	var later []comeback
	for _, b := range r.comebacks {
		switch {
		case now.Before(b.at):
			later = append(later, b)
		case r.children[b.index] == nil: // unless scale has started one already
			r.startAgain(b, now)
		}
	}
	r.comebacks = later
}

// startAgain restarts the process of a peer.
func (r *runner) startAgain(b comeback, now time.Time) {
	ms := float64(now.Sub(b.died)) / float64(time.Millisecond)
	line, err := json.Marshal(event.Event{Time: now, Peer: elastic.ID(r.meet.order.Launcher).Short(), Index: b.index,
		Body: event.Restart{MS: ms}})
	if err == nil {
		err = r.startLate(b.index, r.o.Peers, line)
	}
	if err != nil {
		r.say("peer %d cannot be started again: %v", b.index, err)
		return
	}
	r.say("peer %d is started again, as a new member (restart %d of %d)", b.index, r.o.Restart-r.restarts.left, r.o.Restart)
}

// startLate starts peer index, one of n, in a running group.
func (r *runner) startLate(index, n int, first []byte) error {
	if err := r.spawn(index, n, first); err != nil {
		return err
	}
	r.meet.expect(index)
	return nil
}

// suspect kills a silent or lost member, named by its short ID, if it is a child of this launcher
// that is stopped. This makes the loss certain, so that the other members need not vote about it,
// and nobody waits for the process at the end.
func (r *runner) suspect(id string) {
	i := r.meet.index(id)
	c := r.children[i]
	if c == nil || r.suspended || r.meet.shortID(i) != id {
		return
	}
	if pid, halted := c.suspect(); halted {
		r.halted(i, pid)
	}
}

// halted reports that a stopped child is being killed.
func (r *runner) halted(i, pid int) {
	r.say("%s is stopped and holds up the others: killing it (pid %d)", r.who(r.meet.shortID(i)), pid)
}

// event passes an event to the parts that need it.
func (r *runner) event(from int, line json.RawMessage) {
	var e event.Event
	if err := json.Unmarshal(line, &e); err != nil {
		r.say("peer %d: %v", from, err)
		return
	}
	now := time.Now()
	// All parts see every event; the switch below has the reactions of the launcher itself.
	r.tellAll(r.changes.event(e, now))
	r.progress.observe(e, now)
	r.lobby.event(e.Body)
	switch b := e.Body.(type) {
	case event.Stall:
		if s := r.stalls.line(from, b, now, r.who); s != "" {
			r.say("%s", s)
		}
	case event.View:
		r.meet.viewed(b.Members)
	case event.Lost:
		r.suspect(b.Who)
	case event.Leave:
		if b.Reason == "kicked" {
			r.kicked(b.Who, now)
		}
	case event.Done:
		r.meet.complete(from)
		r.out.dones = append(r.out.dones, doneReport{from, b})
		if c := r.children[from]; c != nil {
			c.result = true
		}
	case event.Dropped:
		r.say("peer %d: %s of its log dropped, which elrun did not take in time", from, countLines(b.Events))
	case event.Quorum:
		r.out.gaveUp = r.out.gaveUp || b.State == "gave-up"
	}
}

// kicked records that a member, named by its short ID, was put out on request. A child of this
// launcher then has to end and is not restarted.
func (r *runner) kicked(id string, now time.Time) {
	i := r.meet.index(id)
	c := r.children[i]
	if c == nil || c.kicked || r.meet.shortID(i) != id {
		return
	}
	c.kicked = true
	if c.asked.IsZero() {
		c.asked = now // it ends by itself or is killed
	}
	r.say("peer %d (%s) was kicked out of the job, and its ticket is void: it is not started again", i, id)
}

// wordSites reports that sites are ignored because only some members have one; "" if all or none
// have one.
func wordSites(members []elastic.Member) string {
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
	if r.noted == nil {
		r.noted = make(map[string]bool)
	}
	if r.noted[text] || len(r.noted) >= maxTold {
		return
	}
	r.noted[text] = true
	r.say("peer %d: %s", from, text)
}

// maxTold bounds the number of different notes that a launcher prints.
const maxTold = 100
