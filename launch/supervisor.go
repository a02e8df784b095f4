package launch

import (
	"encoding/json"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
)

// supervisor keeps the wanted number of this launcher's peers running: it starts them, restarts
// those that crash, and starts or stops some when a user wants another number. The launcher's loop
// owns it. It reads the state of the group from rendezvous and joinQueue, and tells the rendezvous
// to expect each peer that it starts later.
type supervisor struct {
	o          *Options
	procs      *processes
	report     *reporter
	rendezvous *rendezvous
	joinQueue  *joinQueue
	// repeats looks for a part that ends its peers, which is a mistake of the program: mistaken
	// records it.
	repeats  repeats
	mistaken func(what string)
	finished func() bool // whether a peer has finished the job

	want     int // number of peers
	restarts *restarts
	pending  []pendingRestart
}

// pendingRestart is a scheduled restart of a peer.
type pendingRestart struct {
	index int
	died  time.Time
	at    time.Time
}

// isActive reports whether a peer is running or will be restarted. A restarted peer joins the group
// as a newcomer, so there must be a running peer of this launcher, or a member of another launcher.
func (s *supervisor) isActive() bool {
	return len(s.procs.peers) > 0 || len(s.pending) > 0 && s.rendezvous.hasForeignMembers() && !s.finished()
}

// environment returns the environment of the process with an index. n is the number of peers.
func (s *supervisor) environment(index, n int) environment {
	return environment{job: s.o.Job, index: index, peers: n, fd: childFD, transport: s.o.Network.Transport,
		encrypt: s.o.Network.Encrypt, relay: s.o.Network.Relay, listen: s.listen(), site: s.o.Network.Site, grace: s.o.Grace}
}

// listen returns the Listen value of a process that is started now: all interfaces if the job has
// been opened, otherwise the option.
func (s *supervisor) listen() string {
	if s.o.Network.Listen == listenAuto && s.rendezvous.latest.Open {
		return listenAll
	}
	return s.o.Network.Listen
}

// spawn starts the process of peer index, one of n peers. first is an event about the start for the
// event log, or nil. During a start signals wait in their channel.
func (s *supervisor) spawn(index, n int, first []byte) error {
	return s.procs.startPeer(s.environment(index, max(n, index+1)), n, first)
}

// startLate starts peer index, one of n, in a running group.
func (s *supervisor) startLate(index, n int, first []byte) error {
	if err := s.spawn(index, n, first); err != nil {
		return err
	}
	s.rendezvous.expect(index)
	return nil
}

// crashed schedules the restart of a crashed peer, if the options allow it. life is the time from
// start to end of the process. A peer that ended because its group gave up is not restarted: its
// end is no crash.
func (s *supervisor) crashed(e Exit, life time.Duration, now time.Time) {
	if s.restarts.limit == 0 || s.finished() || e.Code == StatusQuorum {
		return
	}
	// A restarted peer gets its state from a member, and no member is left.
	if len(s.procs.peers) == 0 && !s.rendezvous.hasForeignMembers() {
		s.report.printf("peer %d is not started again: there is no peer left that it could join", e.Index)
		return
	}
	pause, again := s.restarts.decide(e.Index, life)
	switch {
	case !again:
		s.report.printf("peer %d is not started again: all %d restarts are used up", e.Index, s.restarts.limit)
		return
	case pause > 0:
		s.report.printf("peer %d ended again after %.1f s; it is started again in %v", e.Index, life.Seconds(), pause)
	}
	s.pending = append(s.pending, pendingRestart{e.Index, e.at, now.Add(pause)})
	s.restartDue(now)
}

// restartDue restarts the peers whose restart is due.
func (s *supervisor) restartDue(now time.Time) {
	var later []pendingRestart
	for _, b := range s.pending {
		switch {
		case now.Before(b.at):
			later = append(later, b)
		case s.procs.peers[b.index] == nil: // not if rescale has started a process in its place already
			s.restart(b, now)
		}
	}
	s.pending = later
}

// restart restarts the process of a peer. The first event of the new process in the event log tells
// how long the peer was missing.
func (s *supervisor) restart(b pendingRestart, now time.Time) {
	ms := float64(now.Sub(b.died)) / float64(time.Millisecond)
	line, err := json.Marshal(event.Event{Time: now, Peer: elastic.ID(s.rendezvous.order.Launcher).Short(), Index: b.index,
		Body: event.Restart{MS: ms}})
	if err == nil {
		err = s.startLate(b.index, s.want, line)
	}
	if err != nil {
		s.report.printf("peer %d cannot be started again: %v", b.index, err)
		return
	}
	s.report.printf("peer %d is started again, as a new member (restart %d of %d)", b.index, s.restarts.used(), s.restarts.limit)
}

// cancelRestarts drops the scheduled restarts: the job is ending.
func (s *supervisor) cancelRestarts() { s.pending = nil }

// rescale changes the number of peers to n and returns a description.
func (s *supervisor) rescale(n int) (string, error) {
	if n < 1 {
		return "", fmt.Errorf("%d peers: want 1 to %d", n, maxPeers)
	}
	leaving := s.procs.leaving()
	before := len(s.procs.peers) - len(leaving)
	plan, err := planScale(s.procs.running(), leaving, s.waiting(), nil, n)
	if err != nil {
		return "", err
	}
	s.pending = nil // the plan counts restarts as new peers
	return s.follow(plan, n, plural(before, "local peer becomes", "local peers become"), n)
}

// rescaleHost changes the number of peers on a host to n and returns a description.
func (s *supervisor) rescaleHost(h *remoteHost, n int) (string, error) {
	var here []int
	for _, i := range s.procs.running() {
		if s.procs.peers[i].host == h.Name {
			here = append(here, i)
		}
	}
	leaving := s.procs.leaving()
	before := 0
	for _, i := range here {
		if !slices.Contains(leaving, i) {
			before++
		}
	}
	// Peers on the other hosts stay as they are.
	all := len(s.procs.peers) - len(leaving) - before + n
	if all < 1 || all > maxPeers {
		return "", fmt.Errorf("%d peers on all hosts: want 1 to %d; elrun stop ends the job", all, maxPeers)
	}
	plan, err := planScale(here, leaving, s.waiting(), s.procs.running(), n)
	if err != nil {
		return "", err
	}
	// Set the slots to the requested number, so that later peers are placed accordingly. Pending
	// restarts on this host are part of the new number.
	h.Slots = max(1, n)
	hosts := s.procs.hosts
	s.pending = slices.DeleteFunc(s.pending, func(b pendingRestart) bool { return hosts.assignedHost(b.index) == h })
	for _, i := range plan.start {
		hosts.assignTo(i, h)
	}
	return s.follow(plan, all, "host "+h.Name+": "+plural(before, "peer becomes", "peers become"), n)
}

// follow carries out a plan. all is the number of peers after it. It returns a line about the plan,
// made of begin and n.
func (s *supervisor) follow(plan scalePlan, all int, begin string, n int) (string, error) {
	for _, i := range plan.start {
		if err := s.startLate(i, all, nil); err != nil {
			return "", fmt.Errorf("start peer %d: %w", i, err)
		}
	}
	for _, i := range plan.leave {
		s.procs.peers[i].asked = time.Now()
		s.procs.peers[i].ask(syscall.SIGTERM)
	}
	s.want = all
	text := fmt.Sprintf("%s %d: %v", begin, n, plan)
	s.report.printf("scale: %s", text)
	return text, nil
}

// waiting returns the indices of the running peers that are in no view yet.
func (s *supervisor) waiting() []int {
	return slices.DeleteFunc(s.procs.running(), func(i int) bool {
		_, waits := s.joinQueue.waiting[i]
		return !waits && s.rendezvous.shortID(i) != ""
	})
}
