package netchaos

import (
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// A peer can join with a ticket whose only named member has died, because --lan finds other members
// on the local network.
func TestOldTicket(t *testing.T) {
	parallel(t)
	l := newLab(t, 4)
	j := newJob(t, l, settings{pace: groupPace, flags: []string{"--lan"}})
	j.start(t, 1)
	old := j.ticket(t, 0)
	j.join(t, 1, 1, old)
	j.join(t, 2, 1, old)
	process.Until(t, "steps of three", func() bool {
		e := j.elruns[2].Read(t)
		return e.Step > 0 && e.StepEpoch == e.ViewEvent.Epoch && len(e.View.Members) == 3
	})
	j.elruns[0].kill()
	process.Until(t, "a view without the ticket's peer", func() bool { return len(j.elruns[2].Read(t).View.Members) == 2 })
	j.join(t, 3, 1, old)
	process.Until(t, "the newcomer among three", func() bool { return len(j.elruns[3].Read(t).View.Members) == 3 })
	j.finish(t)
}

// If the members of a job listen on loopback only, a ticket makes them reachable from other hosts.
// A newcomer from another host then reaches all members, including members that did not issue the
// ticket. Peers that the newcomer's launcher starts later also reach all members.
func TestOpenedJob(t *testing.T) {
	parallel(t)
	l := newLab(t, 2)
	j := newJob(t, l, settings{pace: groupPace})
	j.start(t, 3)
	ticket := j.ticket(t, 0)
	j.join(t, 1, 1, ticket)
	size := func(host, n int) func() bool {
		return func() bool { return len(j.elruns[host].Read(t).View.Members) == n }
	}
	process.Until(t, "the newcomer among four", size(1, 4))
	l.hosts[1].inside(t, "", process.Elrun(), "scale", j.Name, "2")
	process.Until(t, "its neighbour among five", size(1, 5))
	j.finish(t)
}

// A job continues if its only first member leaves as soon as two peers have joined, before these
// have committed a step.
func TestHandOver(t *testing.T) {
	parallel(t)
	j := newJob(t, newLab(t, 3), settings{pace: groupPace})
	j.start(t, 1)
	ticket := j.ticket(t, 0)
	j.join(t, 1, 1, ticket)
	j.join(t, 2, 1, ticket)
	process.Until(t, "a view of three", func() bool { return len(j.elruns[2].Read(t).View.Members) == 3 })
	j.elruns[0].Signal(t, syscall.SIGTERM)
	j.elruns[0].Wait(t)
	before := j.steps(t, []int{0})
	process.Until(t, "steps of the newcomers", func() bool { return j.steps(t, []int{1}) > before+5 && j.steps(t, []int{2}) > before+5 })
	j.finish(t)
}
