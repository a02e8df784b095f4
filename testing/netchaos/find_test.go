package netchaos

import (
	"os"
	"syscall"
	"testing"
)

// A ticket leads into the job after the only peer that it names has died: members are
// found on the local network.
func TestOldTicket(t *testing.T) {
	parallel(t)
	l := newLab(t, 4)
	j := newJob(t, l, settings{pace: groupPace, flags: []string{"--lan"}})
	j.start(t, 1)
	old := j.ticket(t, 0)
	j.join(t, 1, 1, old)
	j.join(t, 2, 1, old)
	until(t, "steps of three", func() bool {
		step, epoch := j.elruns[2].step(t)
		e, v, _ := j.elruns[2].view(t)
		return step > 0 && epoch == e.Epoch && len(v.Members) == 3
	})
	j.elruns[0].kill()
	until(t, "a view without the ticket's peer", func() bool { _, v, ok := j.elruns[2].view(t); return ok && len(v.Members) == 2 })
	j.join(t, 3, 1, old)
	until(t, "the newcomer among three", func() bool { _, v, ok := j.elruns[3].view(t); return ok && len(v.Members) == 3 })
	j.finish(t)
}

// A ticket opens a job whose members listened on loopback only: a newcomer from another host
// reaches all of them, also those that do not know of the ticket, and so do the peers that
// its own launcher starts later.
func TestOpenedJob(t *testing.T) {
	parallel(t)
	l := newLab(t, 2)
	j := newJob(t, l, settings{pace: groupPace})
	j.start(t, 3)
	ticket := j.ticket(t, 0)
	j.join(t, 1, 1, ticket)
	size := func(host, n int) func() bool {
		return func() bool { _, v, ok := j.elruns[host].view(t); return ok && len(v.Members) == n }
	}
	until(t, "the newcomer among four", size(1, 4))
	l.hosts[1].inside(t, "", os.Getenv(elrunVariable), "scale", j.name, "2")
	until(t, "its neighbour among five", size(1, 5))
	j.finish(t)
}

// A job goes on when all that began it leave as soon as others are in, before these have
// taken a step.
func TestHandOver(t *testing.T) {
	parallel(t)
	j := newJob(t, newLab(t, 3), settings{pace: groupPace})
	j.start(t, 1)
	ticket := j.ticket(t, 0)
	j.join(t, 1, 1, ticket)
	j.join(t, 2, 1, ticket)
	until(t, "a view of three", func() bool { _, v, ok := j.elruns[2].view(t); return ok && len(v.Members) == 3 })
	j.elruns[0].signal(t, syscall.SIGTERM)
	j.elruns[0].wait(t)
	before := j.steps(t, []int{0})
	until(t, "steps of the newcomers", func() bool { return j.steps(t, []int{1}) > before+5 && j.steps(t, []int{2}) > before+5 })
	j.finish(t)
}
