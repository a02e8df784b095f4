package netchaos

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// shutIn makes a host refuse incoming TCP connections and all UDP packets, as a firewall does.
func (h *host) shutIn(t *testing.T) {
	t.Helper()
	h.inside(t, "add rule ip netchaos in tcp flags & (syn | ack) == syn drop\nadd rule ip netchaos in meta l4proto udp drop\n", "nft", "-f", "-")
}

// openUp undoes shutIn.
func (h *host) openUp(t *testing.T) {
	t.Helper()
	h.inside(t, "flush chain ip netchaos in\nadd rule ip netchaos in ip saddr @deaf drop\n", "nft", "-f", "-")
}

// Two hosts accept no connections, so they cannot connect with each other, and relays are off. The
// job continues with the first of these hosts. The second waits and reports the reason, until the
// first accepts connections.
func TestApart(t *testing.T) {
	parallel(t)
	l := newLab(t, 3)
	l.hosts[1].shutIn(t)
	l.hosts[2].shutIn(t)
	j := newJob(t, l, settings{pace: groupPace, flags: []string{"--relay", "never"}})
	j.start(t, 1)
	ticket := j.ticket(t, 0)
	j.join(t, 1, 1, ticket)
	process.Until(t, "a view of two", func() bool { return len(j.elruns[1].Read(t).View.Members) == 2 })
	j.join(t, 2, 1, ticket)
	process.Until(t, "the reason", func() bool { return j.elruns[2].Says(" on host1 cannot connect") })
	step := j.steps(t, []int{1})
	process.Until(t, "further steps", func() bool { return j.steps(t, []int{1}) > step+10 })
	l.hosts[1].openUp(t)
	j.untilWhole(t, time.Time{})
	if ev, lost := first(t, j.elruns[0].journal, time.Time{}, func(event.Event, event.Lost) bool { return true }); lost && flagged[bool]("long") {
		t.Errorf("%+v", ev)
	}
	j.finish(t)
}

// Two hosts accept no connections. They train with each other through a relay, a third member that
// accepts connections. The log has a path event for the relay with the reason.
func TestRelay(t *testing.T) {
	parallel(t)
	l := newLab(t, 3)
	l.hosts[1].shutIn(t)
	l.hosts[2].shutIn(t)
	j := newJob(t, l, settings{pace: groupPace})
	j.startAll(t)
	ids := j.untilWhole(t, time.Time{})
	for _, pair := range [][2]int{{1, 2}, {2, 1}} {
		e := j.elruns[pair[0]]
		ev, _ := first(t, e.journal, time.Time{}, func(_ event.Event, p event.Path) bool { return p.Who == ids[pair[1]] })
		p, _ := ev.Body.(event.Path)
		if p.Kind != "relay" || !p.Encrypted || !strings.Contains(p.Addr, l.hosts[0].addr) || p.Why == "" {
			t.Errorf("host %d: path %+v", pair[0], p)
		}
	}
	step := j.steps(t, others(3))
	process.Until(t, "further steps", func() bool { return j.steps(t, []int{1}) > step+5 && j.steps(t, []int{2}) > step+5 })
	killed := time.Now()
	process.Signal(t, j.peer(t, 2), syscall.SIGKILL)
	two := func(_ event.Event, v event.View) bool { return len(v.Members) == 2 }
	process.Until(t, "a view of the two that are left", func() bool { _, ok := first(t, j.elruns[1].journal, killed, two); return ok })
	j.finish(t)
}
