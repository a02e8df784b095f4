package netchaos

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// changeTime is the maximum time until all members use a new path, on a machine that is otherwise
// idle.
const changeTime = 3 * time.Second

// largeModel returns the settings of a job that sends so much data that the rate of its links
// affects steps.
func largeModel() settings { return settings{pace: 2 * time.Millisecond, neurons: 4096} }

// newTwoCables creates two hosts with two networks between them: eth0 with 50 Mbit/s and eth1 with 1 Gbit/s.
func newTwoCables(t *testing.T) *lab {
	t.Helper()
	l := newCable(t)
	command(t, "", "ip", "-n", l.hosts[0].namespace, "link", "add", "eth1", "type", "veth", "peer", "name", "eth1", "netns", l.hosts[1].namespace)
	if _, err := exec.LookPath("tc"); err != nil {
		missing(t, "no tc: install it (Debian: apt-get install iproute2)")
	}
	for i, h := range l.hosts {
		// Without a default route, packets for the network of eth1 cannot be sent by eth0.
		command(t, fmt.Sprintf("addr add %s/24 dev eth1\nlink set eth1 up\nroute del default", second(i)), "ip", "-n", h.namespace, "-batch", "-")
		h.inside(t, "qdisc add dev eth0 root tbf rate 50mbit burst 32k latency 100ms\nqdisc add dev eth1 root tbf rate 1gbit burst 128k latency 50ms\n",
			"tc", "-batch", "-")
	}
	return l
}

// second returns the address of a host on eth1.
func second(i int) string { return fmt.Sprintf("10.78.0.%d", i+1) }

// untilPath waits until the peers on the first two hosts use addresses with the given prefix, in a
// view that has committed steps.
func (j *job) untilPath(t *testing.T, prefix string) {
	t.Helper()
	begun := time.Now()
	process.Until(t, "paths over "+prefix, func() bool {
		for host, e := range j.elruns[:2] {
			v := e.Read(t).View
			for _, id := range v.Members {
				if id != e.ViewEvent.Peer && !strings.HasPrefix(j.path(t, host, id).Addr, prefix) {
					return false
				}
			}
		}
		return j.elruns[0].StepEpoch == j.elruns[0].ViewEvent.Epoch
	})
	t.Logf("paths over %s after %v", prefix, time.Since(begun).Round(time.Millisecond))
	if took := time.Since(begun); took > changeTime && flagged[bool]("long") {
		t.Errorf("the way has changed after %v, want at most %v", took, changeTime)
	}
}

// nobodyLost checks that no peer was reported lost since a time.
func (j *job) nobodyLost(t *testing.T, since time.Time) {
	t.Helper()
	for host, e := range j.elruns {
		for _, ev := range e.Read(t).Since(since) {
			if lost, ok := ev.Body.(event.Lost); ok {
				t.Errorf("host %d: lost %+v", host, lost)
			}
		}
	}
}

// Two networks connect the hosts. Data takes the faster network without configuration, and the
// slower network when the faster one is down. No peer and no step is lost.
func TestTwoCables(t *testing.T) {
	parallel(t)
	l := newTwoCables(t)
	j := newJob(t, l, largeModel())
	j.startAll(t)
	j.untilPath(t, "10.78.")
	begun := time.Now()
	l.hosts[1].inside(t, "", "ip", "link", "set", "eth1", "down")
	j.untilPath(t, "10.77.")
	step := j.steps(t, []int{0})
	process.Until(t, "further steps", func() bool { return j.steps(t, []int{0}) > step+5 })
	j.nobodyLost(t, begun)
	j.finish(t)
}

// A host whose address changes stays in the job.
func TestAddressChanges(t *testing.T) {
	parallel(t)
	l := newLab(t, 3)
	j := newJob(t, l, settings{pace: groupPace})
	j.startAll(t)
	begun := time.Now()
	command(t, "addr del 10.77.0.2/24 dev eth0\naddr add 10.77.0.99/24 dev eth0\nroute replace default dev eth0", "ip", "-n", l.hosts[1].namespace, "-batch", "-")
	j.untilWhole(t, time.Now())
	took := time.Since(begun)
	t.Logf("whole again after %v", took.Round(time.Millisecond))
	if took > 5*time.Second && flagged[bool]("long") {
		t.Errorf("whole again after %v, want at most 5 s", took)
	}
	j.finish(t)
}

// If the network drops long packets but not short ones, the members use short packets, and the path
// event names the MTU.
func TestBlackHoleOfMTU(t *testing.T) {
	parallel(t)
	l := newLab(t, 2)
	j := newJob(t, l, largeModel())
	j.startAll(t)
	begun := time.Now()
	for _, h := range l.hosts {
		h.inside(t, "add rule ip netchaos in ip length > 1400 drop\n", "nft", "-f", "-")
		h.inside(t, "", "ip", "link", "set", "eth0", "gso_max_segs", "1")
	}
	named := func(_ event.Event, p event.Path) bool { return strings.Contains(p.Why, "MTU") }
	process.Until(t, "a path that names the MTU", func() bool { _, ok := first(t, j.elruns[0].journal, begun, named); return ok })
	t.Logf("named after %v", time.Since(begun).Round(time.Millisecond))
	step := j.steps(t, []int{0})
	process.Until(t, "further steps", func() bool { return j.steps(t, []int{0}) > step+5 })
	j.nobodyLost(t, begun)
	j.finish(t)
}
