package netchaos

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
)

// afterElrun is how long peers may continue to run after their elrun was killed.
const afterElrun = 2 * time.Second

// If an elrun is killed, its peers end by themselves. The peers of another elrun continue.
func TestElrunKilled(t *testing.T) {
	parallel(t)
	j := newJob(t, newLab(t, 2), settings{pace: groupPace})
	j.start(t, 2)
	j.join(t, 1, 2, j.ticket(t, 0))
	process.Until(t, "a view of four", func() bool { return len(j.elruns[1].Read(t).View.Members) == 4 })
	if peers := j.peersOn(t, 1); len(peers) != 2 {
		t.Fatalf("host 1 has %d peers, want two", len(peers))
	}
	killed := time.Now() // taken before the signal, because the peers of a killed elrun leave within milliseconds
	j.elruns[1].kill()
	process.Until(t, "the end of the peers of host 1", func() bool { return len(j.peersOn(t, 1)) == 0 })
	took := time.Since(killed)
	if took > afterElrun && flagged[bool]("long") { // only the long form has an idle machine
		t.Errorf("the peers ran on for %v, want at most %v", took, afterElrun)
	}
	two := func(_ event.Event, v event.View) bool { return len(v.Members) == 2 }
	process.Until(t, "a view of the two that are left", func() bool { _, ok := first(t, j.elruns[0].journal, killed, two); return ok })
	step := j.steps(t, []int{0})
	process.Until(t, "further steps", func() bool { return j.steps(t, []int{0}) > step+5 })
	e, _ := first(t, j.elruns[0].journal, killed, two)
	t.Logf("peers of the killed elrun ended after %d ms; the others had a view without them after %d ms", took.Milliseconds(), e.Time.Sub(killed).Milliseconds())
	j.finish(t)
}

// Half of the members are on another host, and all of them are killed. Their elrun lives and knows that they are dead, so the others
// go on, whichever half has begun the job.
func TestHalfDies(t *testing.T) {
	for _, n := range []int{1, 2} {
		for dead := range 2 {
			t.Run(fmt.Sprintf("%d of %d, of host %d", n, 2*n, dead), func(t *testing.T) { halfDies(t, n, dead) })
		}
	}
}

func halfDies(t *testing.T, n, dead int) {
	t.Helper()
	parallel(t)
	j := newJob(t, newLab(t, 2), settings{pace: groupPace, flags: []string{"--rejoin-timeout", "30s"}})
	j.start(t, n)
	j.join(t, 1, n, j.ticket(t, 0))
	for _, e := range j.elruns {
		process.Until(t, "a view in which all vote", func() bool { return len(e.Read(t).View.Voters) == 2*n })
	}
	killed := time.Now()
	for _, p := range j.peersOn(t, dead) {
		process.Signal(t, p.PID, syscall.SIGKILL)
	}
	left := j.elruns[1-dead]
	half := func(_ event.Event, v event.View) bool { return len(v.Members) == n }
	process.Until(t, "a view of the half that is left", func() bool { _, ok := first(t, left.journal, killed, half); return ok })
	step := j.steps(t, []int{left.host})
	process.Until(t, "further steps", func() bool { return j.steps(t, []int{left.host}) > step+5 })
	if status := j.elruns[dead].Wait(t); status != 1 {
		t.Errorf("the elrun whose peers were killed ended with status %d", status)
	}
	j.finish(t)
}

// If no part of the group has a majority, all peers wait for --rejoin-timeout and report this. Then
// they end with the exit status for a lost quorum.
func TestNoQuorum(t *testing.T) {
	parallel(t)
	j := newJob(t, newLab(t, 3), settings{pace: groupPace, flags: []string{"--rejoin-timeout", "5s"}})
	j.startAll(t)
	cut := time.Now()
	j.lab.cut(t, []hole{{0, 1}, {1, 0}, {0, 2}, {2, 0}, {1, 2}, {2, 1}})
	for _, e := range j.elruns {
		if status := e.Wait(t); status != launch.StatusQuorum {
			t.Errorf("elrun of host %d ended with status %d, want %d", e.host, status, launch.StatusQuorum)
		}
		for _, state := range []string{"lost", "waiting", "gave-up"} {
			ev, ok := first(t, e.journal, cut, func(_ event.Event, q event.Quorum) bool { return q.State == state })
			if !ok {
				t.Errorf("host %d reports no quorum event with state %q", e.host, state)
				continue
			}
			t.Logf("host %d: %-7s after %5d ms: %+v", e.host, state, ev.Time.Sub(cut).Milliseconds(), ev.Body)
		}
		for _, text := range []string{"too few peers are left", "gives up with status 75"} {
			if !e.Says(text) {
				t.Errorf("host %d does not say %q", e.host, text)
			}
		}
	}
	j.finish(t)
}
