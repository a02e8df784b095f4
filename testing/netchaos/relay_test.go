package netchaos

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/internal/event"
)

// shutIn makes a host take in no connection, as those behind a router do that nobody has
// told of them.
func (h *host) shutIn(t *testing.T) {
	t.Helper()
	h.inside(t, "add rule ip netchaos in tcp flags & (syn | ack) == syn drop\n", "nft", "-f", "-")
}

// Two hosts that nobody can connect with train with each other by way of one that all can
// connect with, if all allow it. The log says so.
func TestRelay(t *testing.T) {
	parallel(t)
	l := newLab(t, 3)
	l.hosts[1].shutIn(t)
	l.hosts[2].shutIn(t)
	j := newJob(t, l, settings{pace: groupPace, flags: []string{"--relay", "members"}})
	j.startAll(t)
	ids := j.untilWhole(t, time.Time{})
	for _, pair := range [][2]int{{1, 2}, {2, 1}} {
		e := j.elruns[pair[0]]
		ev, _ := first(t, e.journal, time.Time{}, func(_ event.Event, p event.Path) bool { return p.Who == ids[pair[1]] })
		p, _ := ev.Body.(event.Path)
		if p.Kind != "relay" || !p.Encrypted || !strings.Contains(p.Addr, l.hosts[0].addr) {
			t.Errorf("host %d: path %+v", pair[0], p)
		}
	}
	step := j.steps(t, others(3))
	until(t, "further steps", func() bool { return j.steps(t, []int{1}) > step+5 && j.steps(t, []int{2}) > step+5 })
	killed := time.Now()
	if err := syscall.Kill(j.peer(t, 2), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	two := func(_ event.Event, v event.View) bool { return len(v.Members) == 2 }
	until(t, "a view of the two that are left", func() bool { _, ok := first(t, j.elruns[1].journal, killed, two); return ok })
	j.finish(t)
}
