package run

import (
	"cmp"
	"encoding/json"
	"fmt"
	"syscall"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch/internal/hosts"
	"github.com/elrun/elrun/launch/internal/job"
	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/say"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// supervisor carries out the decisions of package job: it starts, asks and kills the processes of
// peers, answers their hellos, and tells them of deaths. The launcher's loop owns it, and tells it what
// it notices:
//
//	notice --> input --> record --> job --> outputs --> carry
//
// It makes no decision about the life of the job itself.
type supervisor struct {
	o          *spec.Options
	procs      *processes
	report     *say.Reporter
	roster     *roster
	joinQueue  *say.JoinQueue
	membership *say.MembershipLog
	outcome    *outcome
	// repeats looks for a part that ends its peers, which is a mistake of the program.
	repeats repeats

	job        *job.Job          // nil before start
	later      []job.Input       // facts that have come from carrying out outputs
	begun      time.Time         // when the clock of the job began
	want       int               // number of peers
	placing    *hosts.Host       // where the processes start that a user has asked for on a host; else nil
	unstarted  error             // the last process that could not be started
	generation int               // of the present group; 0 before the first
	restarts   int               // that are allowed in all
	restarted  int               // restarts so far
	died       map[int]time.Time // by seat: when the process ended that is to be started again
	killed     bool              // all processes were killed after a signal
	herald     herald
	journal    journal
}

// newSupervisor returns the supervisor of a job whose processes have not been started.
func newSupervisor(o *spec.Options, procs *processes, report *say.Reporter, group *roster) *supervisor {
	return &supervisor{o: o, procs: procs, report: report, roster: group, begun: time.Now(), want: o.Peers,
		restarts: o.Membership.Restart, died: make(map[int]time.Time), herald: herald{results: make(chan obituary, 1)}, journal: journal{to: report.Console, model: timeline.New(), launcher: group.order.Launcher}}
}

// start starts the job and its processes. After an error it has asked those to end that it has started.
func (s *supervisor) start() error {
	s.journal.job(s.o)
	var outs []job.Output
	s.job, outs = job.New(job.Config{Peers: s.want, Restarts: s.restarts, Join: s.o.Join, StartTimeout: s.o.Membership.StartTimeout, Grace: s.o.Grace})
	s.carry(outs)
	return s.unstarted
}

// isActive reports whether a process is running or will be started.
func (s *supervisor) isActive() bool { return s.outcome.over == nil }

// record tells the job a fact, carries out all that follows, and returns the outputs of this fact.
func (s *supervisor) record(in job.Input) []job.Output {
	s.carry(s.job.Step(job.Tick{Now: time.Since(s.begun)}))
	outs := s.job.Step(in)
	s.carry(outs)
	return outs
}

// carry carries out outputs, and those that follow from them.
func (s *supervisor) carry(outs []job.Output) {
	for _, o := range outs {
		s.carryOut(o)
	}
	for len(s.later) > 0 {
		next := s.later[0]
		s.later = s.later[1:]
		for _, o := range s.job.Step(next) {
			s.carryOut(o)
		}
	}
}

// carryOut carries out an output.
func (s *supervisor) carryOut(o job.Output) {
	switch o := o.(type) {
	case job.Start:
		s.spawnIn(o.Seat)
	case job.First:
		s.first(o)
	case job.Join:
		s.joinQueue.Add(o.Seat, s.roster.shortID(o.Seat), time.Now())
		s.send(o.Seat, s.roster.join(o.Seat))
	case job.Pass:
		if m, ok := s.roster.pass(o.ID); ok {
			s.send(o.Seat, m)
		}
	case job.Finish:
		s.send(o.Seat, wire.Message{Finished: true})
	case job.Abort:
		s.send(o.Seat, wire.Message{Abort: s.outcome.formatAbort(o)})
	case job.Hold:
		s.send(o.Seat, wire.Message{Again: true})
	case job.Dead:
		s.send(o.Seat, wire.Message{Dead: s.roster.full(o.ID)})
	case job.Ended:
		if o.Again {
			s.died[o.Seat] = time.Now()
		}
	case job.Obituary:
		s.announce(o.IDs)
	case job.Ask:
		if c := s.procs.peers[o.Seat]; c != nil {
			c.asked = time.Now()
			c.Ask(s.leaveSignal())
		}
	case job.Kill:
		s.kill(o.Seat)
	case job.Over:
		s.outcome.over = &o
	}
}

// send sends a message to the process in a seat.
func (s *supervisor) send(seat int, m wire.Message) {
	if c := s.procs.peers[seat]; c != nil {
		c.Send(m)
	}
}

// environment returns the environment of the process with an index. n is the number of peers.
func (s *supervisor) environment(index, n int) wire.Environment {
	return wire.Environment{Job: s.o.Job, Index: index, Peers: n, FD: proc.ChildFD, Transport: s.o.Network.Transport,
		Encrypt: s.o.Network.Encrypt, Relay: s.o.Network.Relay, Listen: s.listen(), Site: s.o.Network.Site, Grace: s.o.Grace}
}

// listen returns the Listen value of a process that is started now: all interfaces if the job has
// been opened, otherwise the option.
func (s *supervisor) listen() string {
	if s.o.Network.Listen == spec.ListenAuto && s.roster.latest.Open {
		return spec.ListenAll
	}
	return s.o.Network.Listen
}

// spawnIn starts the process of a seat. During a start signals wait in their channel. The first event
// of a process that is started again tells how long the peer was missing.
func (s *supervisor) spawnIn(seat int) {
	var first []byte
	died, again := s.died[seat]
	delete(s.died, seat)
	now := time.Now()
	if again {
		first, _ = json.Marshal(event.Event{Time: now, Peer: elastic.ID(s.roster.order.Launcher).Short(), Index: seat,
			Body: event.Restart{MS: float64(now.Sub(died)) / float64(time.Millisecond)}})
	}
	if s.placing != nil {
		s.procs.hosts.AssignTo(seat, s.placing)
	}
	if err := s.procs.startPeer(s.environment(seat, max(s.want, seat+1)), s.want, first); err != nil {
		s.unstarted = err
		if again {
			s.report.Printf("peer %d cannot be started again: %v", seat, err)
		}
		s.later = append(s.later, job.Exit{Seat: seat, Code: hosts.StatusNotStarted})
		return
	}
	s.roster.expect(seat)
	if again {
		s.restarted++
		s.report.Printf("peer %d is started again, as a new member (restart %d of %d)", seat, s.restarted, s.restarts)
	}
}

// first tells a peer the members of a first view.
func (s *supervisor) first(o job.First) {
	if o.Generation > s.generation {
		program := s.roster.peers[o.Seat].program
		if s.generation > 0 {
			s.again(o.Members, program > s.roster.program)
		}
		s.generation = o.Generation
		s.outcome.member = true
		s.roster.begin(o.Members, program)
	}
	s.send(o.Seat, s.roster.first(o.Members))
}

// again reports that peers form another group, after all members of the last one have gone. If they run
// a further program, its result becomes the result of the job.
func (s *supervisor) again(members []job.ID, further bool) {
	// The lines about the old group come before the line about the new one.
	s.report.Lines(s.membership.Reset())
	s.report.BeginAgain()
	if !further {
		var seats []int
		for _, id := range members {
			seats = append(seats, s.roster.index(string(id)))
		}
		s.report.Printf("no member of the job is left; %s, which waited to join, %s", say.ListPeers(seats),
			map[bool]string{true: "begins anew", false: "begin anew"}[len(seats) == 1])
		return
	}
	s.report.Printf("all peers have finished a program and begun another one, which they run as a new group")
	for _, c := range s.procs.peers {
		c.result = false
	}
	if done, _ := AgreeDone(s.outcome.dones); done != nil {
		s.report.Printf("the result of the finished program: %s", done.Line())
	}
	s.outcome.dones = nil
}

// leaveSignal returns the signal that asks a process to leave: the one that this launcher got, except
// for SIGPIPE, as the peers' own output is not broken. If the job has peers of other launchers it is
// SIGTERM, so that the peers leave and are not lost.
func (s *supervisor) leaveSignal() syscall.Signal {
	if s.outcome.signal == syscall.SIGPIPE || s.roster.hasForeignMembers() {
		return syscall.SIGTERM
	}
	return cmp.Or(s.outcome.signal, syscall.SIGTERM)
}

// kill kills a process that is late, or that is stopped and holds up the others.
func (s *supervisor) kill(seat int) {
	c := s.procs.peers[seat]
	switch {
	case c == nil, s.killed:
		return
	case c.halted:
		name := cmp.Or(s.roster.describe(s.roster.shortID(seat)), fmt.Sprintf("peer %d", seat))
		s.report.Printf("%s is stopped and holds up the others: killing it (pid %d)", name, c.PID())
	case s.outcome.signal == 0:
		s.report.Printf("peer %d still runs %v after it was asked to leave; killing it", seat, s.o.Grace)
		c.late = true
	default:
		s.report.Printf("peers still run %v after they were asked to end; killing them", s.o.Grace)
		for _, c := range s.procs.peers {
			c.late = true
		}
		s.killAll()
		return
	}
	c.Signal(syscall.SIGKILL)
}

// killAll kills all process groups and stops waiting for output.
func (s *supervisor) killAll() {
	s.killed = true
	s.report.Console.Abandon()
	s.procs.signal(syscall.SIGKILL)
	s.procs.hosts.CutOff()
}

// hello records that a peer waits. If there is no job to join, it says so once.
func (s *supervisor) hello(from int, self elastic.Member) {
	outs := s.record(s.roster.hello(from, self))
	s.told(from)
	for _, o := range outs {
		// The job's last line names a mistake, and tells of elrun stop.
		if a, ok := o.(job.Abort); ok && a.Why != job.Mistaken && !s.outcome.stopping {
			s.report.Printf("the peers that wait to join are told to end: %s", s.outcome.formatAbort(a))
			return
		}
	}
}

// told emits the event of a peer that has told its ID.
func (s *supervisor) told(from int) {
	s.journal.hello(s.roster.peers[from].member, s.procs.peers[from])
}

// exited records the end of a process, and says it if it is a failure. The peers learn of it first: they
// may wait until this death is certain. The line about a lost member waits for the next view, and lines
// about other failures wait for their likely cause.
func (s *supervisor) exited(e spec.Exit, c *child, failures *say.FailureReport) {
	short := s.roster.shortID(e.Index)
	s.roster.end(e.Index, !e.Lost)
	s.outcome.exits = append(s.outcome.exits, e)
	last := &s.outcome.exits[len(s.outcome.exits)-1]
	outs := s.record(job.Exit{Seat: e.Index, Code: max(e.Code, 0), Signal: int(e.Signal), Lost: e.Lost, Asked: e.By != 0})
	var end job.Ended
	told := false // the others are told to end
	for _, o := range outs {
		switch o := o.(type) {
		case job.Ended:
			end = o
		case job.Abort:
			told = o.Why == job.EndedEarly && o.Who == e.Index
		}
	}
	byRequest := e.Signal != 0 && e.Signal != syscall.SIGKILL && !c.asked.IsZero() // it has ended between its result and its end
	e.Asked = end.End == job.Left || end.End == job.Released || end.End == job.Complete && byRequest
	last.Asked = e.Asked
	s.journal.exit(e, short)
	s.repeats.ended(short, e, c.words)
	defer s.judge(e.At)
	if line := c.unsaved(e, s.o.Grace); line != "" {
		s.report.Printf("%s", line)
	}
	started := s.generation > 0 || s.o.Join
	now := time.Now()
	switch {
	case s.outcome.ending() || e.Asked && started: // nothing is said about an expected end
	case s.outcome.mistake != "" && e.Signal == 0 && !e.Lost: // the job's last line names the mistake
	case told:
		s.report.Printf("peer %d (pid %d) %v before all had joined; the others are told to end", e.Index, e.PID, e)
	case !e.Failed():
		if started && short != "" {
			s.membership.Completed(short, now)
		}
	case started && short != "":
		said := e.Says // after the process ID
		if said != "" {
			said = ": " + said
		}
		e.Says = ""
		s.report.Lines(s.membership.Ended(short, fmt.Sprintf("%v, pid %d%s", e, e.PID, said), now))
		s.sayRestart(e, end, now.Sub(c.begun))
	default:
		failures.Add(e, now)
		s.sayRestart(e, end, now.Sub(c.begun))
	}
}

// sayRestart says when the process of a peer is started again. life is how long it ran.
func (s *supervisor) sayRestart(e spec.Exit, end job.Ended, life time.Duration) {
	switch {
	case end.Again && end.Pause > 0:
		s.report.Printf("peer %d ended again after %.1f s; it is started again in %v", e.Index, life.Seconds(), end.Pause)
	case !end.Again && (end.End == job.Died || end.End == job.Broke) && s.restarts > 0 && s.restarted+len(s.died) >= s.restarts && !s.membership.Done:
		s.report.Printf("peer %d is not started again: all %d restarts are used up", e.Index, s.restarts)
	}
}

// mistaken records a mistake of the program that a peer has found, or with seat -1 this launcher.
func (s *supervisor) mistaken(seat int, what string) {
	s.outcome.mistake = cmp.Or(s.outcome.mistake, what)
	s.record(job.Mistake{Seat: seat})
}

// allow allows further restarts.
func (s *supervisor) allow(restarts int) {
	s.restarts += restarts
	s.record(job.Restarts{N: restarts})
}
