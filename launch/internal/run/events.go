package run

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch/internal/job"
	"github.com/elrun/elrun/launch/internal/say"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// notice handles a notice from the goroutines of a process. Indices from MaxPeers on belong to the
// nodes of a program: services and tasks. After the end of a peer some nodes may be due to start or
// stop.
func (r *runner) notice(n notice) {
	switch {
	case n.dying != "":
		if r.roster.dying(n.from, n.dying) {
			r.peers.record(job.Dying{Seat: n.from})
		}
	case n.from >= spec.MaxPeers && n.msg != nil && n.msg.Program != nil:
		r.program(n.from, *n.msg.Program)
	case n.from >= spec.MaxPeers:
		r.graph.notice(n)
	case n.remains != nil:
		r.keep(n.from, *n.remains)
	case n.exit != nil:
		r.exited(*n.exit)
		r.graph.runDue(time.Now())
	case n.err != nil:
		r.report.Printf("peer %d: %v", n.from, n.err)
	case n.halt != nil:
		if c := r.procs.peers[n.from]; c != nil && !r.procs.suspended {
			r.halted(n.from, c, n.halt.On)
		}
	default:
		// The process that sends hello is the peer. The process that the launcher started may be a
		// shell around the peer.
		if n.msg.Hello != nil {
			r.procs.peers[n.from].SetPID(n.pid)
		}
		r.message(n.from, *n.msg)
	}
}

// message handles a message from a peer. The decoder has checked the message.
func (r *runner) message(from int, m wire.Message) {
	switch {
	case m.Hello != nil:
		r.peers.hello(from, *m.Hello)
		r.tellFound(from)
	case m.Renew != nil:
		r.joinQueue.Add(from, m.Renew.ID.Short(), time.Now())
		r.peers.record(r.roster.renew(from, *m.Renew))
		r.peers.told(from)
		r.tellFound(from)
	case m.Event != nil:
		r.event(from, m.Event)
	case m.Leaving:
		r.peers.record(job.Leave{Who: job.ID(r.roster.shortID(from)), Soon: true})
	case m.Failed != "":
		if c := r.procs.peers[from]; c != nil {
			c.says = wire.Clip(wire.ClipNote(m.Failed), shownSays)
		}
	case m.Note != "":
		r.report.Note(from, wire.ClipNote(m.Note))
	case m.Suspect != "":
		r.suspect(m.Suspect.Short())
	case m.Retry != nil:
		r.peers.repeats.begin(from, *m.Retry, time.Now())
		r.peers.judge(time.Now())
	case m.Inquiry != nil:
		r.figures.tell(from, *m.Inquiry, r.peers.journal.model, time.Now())
	case m.Figures != nil:
		r.figures.answered(*m.Figures)
	case m.Scale != nil:
		r.scale(from, *m.Scale)
	case m.Known != nil:
		r.roster.learn(*m.Known)
		if r.roster.hasForeignMembers() {
			r.peers.record(job.Foreign{})
		}
		r.peers.journal.learn(r.roster.others())
		r.report.Sites(m.Known.Members)
		r.discovery.announce(r.roster.latest, r.roster.hasLocalMember())
	case m.Program != nil:
		r.program(from, *m.Program)
	}
}

// shownSays is the number of bytes of a program's words in a line.
const shownSays = 100

// tellFound sends a peer the members that the Discovery has found so far.
func (r *runner) tellFound(to int) {
	if found := r.discovery.latest; found != nil {
		r.peers.send(to, wire.Message{Found: found})
	}
}

// onDiscovered passes the members that the Discovery has found to all peers, and stores them for
// later peers.
func (r *runner) onDiscovered(members []elastic.Member) {
	r.discovery.latest = members
	for _, c := range r.procs.peers {
		c.Send(wire.Message{Found: members})
	}
}

// exited handles the end of a process.
func (r *runner) exited(e spec.Exit) {
	c := r.procs.peers[e.Index]
	r.procs.remove(e.Index)
	r.joinQueue.Remove(e.Index)
	e.Result, e.PID = c.result, c.PID()
	if e.Code > 0 {
		e.Says = c.says
	}
	r.peers.exited(e, c, &r.failures)
}

// suspect looks whether the silent or lost member with short ID id, if it is a child of this launcher,
// is stopped (SIGSTOP). The members cannot tell a stopped process from a broken network.
func (r *runner) suspect(id string) {
	i := r.roster.index(id)
	c := r.procs.peers[i]
	if c == nil || r.procs.suspended || r.roster.shortID(i) != id {
		return
	}
	c.suspect = true
	if h, now := c.Look(); now {
		r.halted(i, c, h.On)
	}
}

// lookAll looks which processes on this host are stopped. The agents of other hosts report that.
func (r *runner) lookAll() {
	for i, c := range r.procs.peers {
		if c.host != "" || r.procs.suspended {
			continue
		}
		if h, _ := c.Look(); h.On || c.halted {
			r.halted(i, c, h.On)
		}
	}
}

// halted records whether the process of peer i is stopped.
func (r *runner) halted(i int, c *child, on bool) {
	suspect := c.suspect
	c.halted, c.suspect = on, false
	r.peers.record(job.Halted{Seat: i, On: on})
	if on && suspect {
		r.peers.record(job.Suspect{Who: job.ID(r.roster.shortID(i))})
	}
}

// led reports whether this launcher led the job in an epoch; 0 stands for the latest known one. It leads
// unless launchers share its outputs.
func (r *runner) led(epoch uint64) bool {
	if epoch == 0 || !r.o.Output.Shared {
		return r.report.IsLeading()
	}
	return r.roster.led(epoch)
}

// event passes an event of a peer to the parts of the launcher that use it. The goroutine that
// reads the peer's messages has already sent the event to the event log.
func (r *runner) event(from int, line json.RawMessage) {
	var e event.Event
	if err := json.Unmarshal(line, &e); err != nil {
		r.report.Printf("peer %d: %v", from, err)
		return
	}
	now := time.Now()
	r.peers.journal.add(e)
	if c := r.procs.peers[from]; c != nil {
		c.event(e.Body)
	}
	// All parts see every event; the switch below has the reactions of the launcher itself.
	r.report.Shared(r.membership.Event(e, now))
	r.report.Observe(e, now)
	r.joinQueue.Event(e.Body)
	switch b := e.Body.(type) {
	case event.Stall:
		if s := r.stalls.Line(from, b, now, r.roster.describe); s != "" {
			r.report.Printf("%s", s)
		}
	case event.View:
		view := job.View{Seat: from}
		for _, id := range b.Members {
			view.Members = append(view.Members, job.ID(id))
		}
		r.outcome.member = true
		r.peers.record(view)
	case event.Lost:
		r.suspect(b.Who)
	case event.Leave:
		r.left(from, e.Peer, b)
	case event.Complete:
		r.peers.record(job.Closed{Seat: from})
	case event.Done:
		if len(r.outcome.dones) == 0 {
			r.outcome.leading = r.led(e.Epoch)
		}
		r.outcome.dones = append(r.outcome.dones, DoneReport{from, b})
		r.peers.record(job.Done{Seat: from, Digest: b.SHA256})
	case event.Dropped:
		r.report.Printf("peer %d: %s of its event log dropped: elrun was too slow to take them", from, say.CountLines(b.Events))
	case event.Mistake:
		if b.Found {
			r.outcome.finders = append(r.outcome.finders, from)
		}
		r.peers.mistaken(from, printable.Line(b.Reason))
	case event.Refused:
		r.outcome.refused = cmp.Or(r.outcome.refused, printable.Line(b.Reason))
		r.peers.record(job.Refused{Seat: from})
	case event.Quorum:
		if b.State == "gave-up" {
			r.peers.record(job.TooFew{Seat: from})
		}
	}
}

// left records that a peer leaves, as itself or another member says. A kicked child of this launcher has
// to end and is not started again.
func (r *runner) left(from int, by string, e event.Leave) {
	i := r.roster.index(e.Who)
	switch {
	case e.Reason == "kicked" && i >= 0 && r.roster.shortID(i) == e.Who:
		if c := r.procs.peers[i]; c != nil && !c.kicked {
			c.kicked = true
			r.report.Printf("peer %d (%s) was kicked out of the job, and its ticket is void: it is not started again", i, e.Who)
			r.peers.record(job.Leave{Who: job.ID(e.Who), Kicked: true})
		}
	case e.Reason == "asked" && by == e.Who:
		r.peers.record(job.Leave{Who: job.ID(e.Who)})
	case e.Reason == "closed" && by == e.Who:
		r.peers.record(job.Closed{Seat: from})
	}
}
