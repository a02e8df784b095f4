package netchaos

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// These are the addresses in each home network.
const (
	homeRouter = "192.168.1.1"
	homeHost   = "192.168.1.2"
)

// home puts a host behind a router of its own, as in a home. The host has a private address. Other hosts see the address of the
// router, which lets in only answers.
func (l *lab) home(t *testing.T, i int) {
	t.Helper()
	l.behind(t, i, "port")
}

// A host in a home network connects with hosts outside of home networks, without a relay.
func TestHome(t *testing.T) {
	parallel(t)
	l := newLab(t, 3)
	l.home(t, 1)
	j := newJob(t, l, settings{pace: groupPace})
	j.startAll(t)
	ids := j.untilWhole(t, time.Time{})
	for _, other := range []int{0, 2} {
		p := j.path(t, other, ids[1])
		// On a busy machine the two hosts may have a hole-punched path through the router before
		// the host in the home network has dialled.
		straight := p.Kind == "direct" || strings.Contains(p.Addr, "/udp/")
		if !straight || !p.Encrypted || !strings.Contains(p.Addr, l.hosts[1].addr) {
			t.Errorf("host %d: path to the one in a home %+v", other, p)
		}
	}
	j.finish(t)
}

// Hosts in three home networks have the same private address, and find each other through their
// routers. They continue when a member is lost, even if it is the only member outside of home
// networks, from which they have each other's addresses.
func TestHomes(t *testing.T) {
	parallel(t)
	l := newLab(t, 4)
	for i := 1; i < 4; i++ {
		l.home(t, i)
	}
	j := newJob(t, l, settings{pace: groupPace})
	j.startAll(t)
	ids := j.untilWhole(t, time.Time{})
	for _, pair := range [][2]int{{1, 2}, {1, 3}, {2, 1}, {2, 3}, {3, 1}, {3, 2}} {
		p := j.path(t, pair[0], ids[pair[1]])
		if p.Kind != "p2p" || !p.Encrypted || !strings.Contains(p.Addr, l.hosts[pair[1]].addr+"/udp/") {
			t.Errorf("host %d: path to host %d %+v", pair[0], pair[1], p)
		}
	}
	for i := 1; i < 4; i++ {
		if p := j.path(t, i, ids[0]); p.Kind != "direct" {
			t.Errorf("host %d: path to the one that is in no home %+v", i, p)
		}
	}
	for left, lost := range []int{2, 0} {
		killed := time.Now()
		process.Signal(t, j.peer(t, lost), syscall.SIGKILL)
		fewer := func(_ event.Event, v event.View) bool { return len(v.Members) == 3-left }
		process.Until(t, "a view of those that are left", func() bool { _, ok := first(t, j.elruns[1].journal, killed, fewer); return ok })
		step := j.steps(t, []int{1})
		process.Until(t, "further steps", func() bool { return j.steps(t, []int{1}) > step+5 && j.steps(t, []int{3}) > step+5 })
	}
	j.finish(t)
}

// path returns the last path to the peer with ID to that the peer on a host has reported.
func (j *job) path(t *testing.T, host int, to string) (last event.Path) {
	t.Helper()
	for _, ev := range j.elruns[host].Read(t).Since(time.Time{}) {
		if p, ok := ev.Body.(event.Path); ok && p.Who == to {
			last = p
		}
	}
	return last
}
