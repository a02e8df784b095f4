package netchaos

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/testing/process"
)

// A peer on another host, which an agent has started, is killed while it holds much memory. The peers on two further hosts take it for
// dead before the kernel has freed the memory. The launcher's line has the status of the process all the same. The long form measures
// the time to the next step.
func TestKillLargeOnAnotherHost(t *testing.T) {
	parallel(t)
	l := newLab(t, 4)
	ssh := l.serveSSH(t)
	for _, mb := range pick([]int{200}, []int{16, 1000, 4000}) {
		t.Run(fmt.Sprint(mb), func(t *testing.T) {
			var steps, views []time.Duration
			for range times(1, 5) {
				view, step := killLarge(t, l, ssh, mb)
				views, steps = append(views, view), append(steps, step)
			}
			slices.Sort(steps)
			slices.Sort(views)
			t.Logf("%d kills of peers with %d MiB: to the view of the others p50 %v, worst %v; to the next step p50 %v, worst %v", len(steps), mb,
				views[len(views)/2], views[len(views)-1], steps[len(steps)/2], steps[len(steps)-1])
		})
	}
}

// killLarge kills one of three peers with mb MiB of memory. It returns the times to the next view and to the next step.
func killLarge(t *testing.T, l *lab, ssh string, mb int) (view, step time.Duration) {
	t.Helper()
	j := process.NewJob(t)
	log := process.NewLog(t, filepath.Join(t.TempDir(), "events"))
	args := []string{process.Elrun(), "-H", "host1,host2,host3", "--ssh", ssh, "--connect-timeout", process.Limit.String(), "--name", j.Name, "--events", log.Path}
	for _, v := range append(settings{pace: 5 * time.Millisecond, batch: 3, ballast: mb}.env(), roleVariable+"=train") {
		args = append(args, "-x", v)
	}
	elrun := j.Start(t, on(t, l.hosts[0], nil, append(args, process.Self(t))...))
	elrun.Until(t, "steps of three hosts", func() bool { return log.Read(t).Step > 20 && len(log.View.Members) == 3 })
	var victim process.Peer
	for _, p := range j.Peers(t) {
		if p.Index == 1 {
			victim = p
		}
	}
	killed := time.Now()
	process.Signal(t, victim.PID, syscall.SIGKILL)
	elrun.Until(t, "a view of two hosts", func() bool { return len(log.Read(t).View.Members) == 2 })
	epoch, at := log.ViewEvent.Epoch, log.Step
	elrun.Until(t, "further steps", func() bool { return log.Read(t).Step > at+5 })
	elrun.Expect(t, "is lost: it was killed by signal 9 (killed), pid")
	for _, e := range log.Since(killed) {
		switch {
		case e.Epoch != epoch:
		case view == 0 && e.Body.Name() == "view":
			view = e.Time.Sub(killed)
		case step == 0 && e.Body.Name() == "step": // reported when the next step is committed
			step = e.Time.Sub(killed)
		}
	}
	elrun.Signal(t, syscall.SIGINT)
	if status := elrun.Wait(t); status != 128+int(syscall.SIGINT) {
		t.Errorf("status %d", status)
	}
	process.Until(t, "the end of all peers", func() bool { return len(j.Peers(t)) == 0 })
	j.CheckGone(t)
	return view, step
}
