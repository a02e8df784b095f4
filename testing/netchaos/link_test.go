package netchaos

import (
	"fmt"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// Two hosts that have only link-local IPv6 addresses form a job, although their interfaces to the common link have different
// names.
func TestLinkLocal(t *testing.T) {
	parallel(t)
	l := newCable(t)
	for i, h := range l.hosts {
		h.inside(t, "", "sh", "-c", "[ ! -e /proc/sys/net/ipv6 ] || echo 0 >/proc/sys/net/ipv6/conf/all/disable_ipv6")
		h.inside(t, fmt.Sprintf("addr flush dev eth0\nlink set eth0 down\nlink set eth0 name cable%d\nlink set cable%d up\naddr add fe80::%d/64 dev cable%d nodad\n", i, i, i+1, i),
			"ip", "-batch", "-")
	}
	j := newJob(t, l, settings{pace: groupPace})
	j.elrun(t, 0, "-n", "1", "--name", j.Name, "--listen", "fe80::1%cable0")
	process.Until(t, "the first step", func() bool { return j.elruns[0].Read(t).Step > 0 })
	j.elrun(t, 1, "join", j.ticket(t, 0), "-n", "1", "--listen", "fe80::2%cable1")
	process.Until(t, "steps of two", func() bool {
		e := j.elruns[1].Read(t)
		return e.Step > 0 && e.StepEpoch == e.ViewEvent.Epoch && len(e.View.Members) == 2
	})
	j.finish(t)
}
