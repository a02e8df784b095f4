package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// softmax is an elrun of a job on MNIST: the first elrun with four peers, or the elrun of a peer
// that joins.
type softmax struct {
	*elrun
	program []string // program with arguments
	log     *process.Log
}

// startSoftmax starts the job with four peers.
func startSoftmax(t *testing.T, args ...string) *softmax {
	t.Helper()
	path, data := mnist(t)
	if long() {
		goAhead(t)
	}
	s := &softmax{elrun: &elrun{job: process.NewJob(t)}, log: process.NewLog(t, filepath.Join(t.TempDir(), "events")),
		program: slices.Concat([]string{"--", path, "--data", data, "--model", "softmax", "--microbatch", "8"}, args)}
	s.launch(t, slices.Concat([]string{"run", "-n", "4", "--name", s.job.Name, "--listen", listen(), "--events", s.log.Path}, s.program))
	return s
}

// comes starts an elrun with one peer that wants to join. The peer is ten times slower than the
// others.
func (s *softmax) comes(t *testing.T) *softmax {
	t.Helper()
	late := &softmax{elrun: &elrun{job: s.job}, log: process.NewLog(t, filepath.Join(t.TempDir(), "events"))}
	late.launch(t, slices.Concat([]string{"join", "--name", s.job.Name, "-n", "1", "--listen", listen(), "--events", late.log.Path}, s.program,
		[]string{"--slow", "0:10"}))
	return late
}

// events returns the events in the log so far.
func (s *softmax) events(t *testing.T) []event.Event {
	t.Helper()
	return s.log.Read(t).Events
}

// expectStep waits until the job has reported a step.
func (s *softmax) expectStep(t *testing.T, step int64) {
	t.Helper()
	s.Until(t, "steps", func() bool { return s.log.Read(t).Step >= step })
}

// goOn waits until the job has made this many further steps.
func (s *softmax) goOn(t *testing.T, steps int64) {
	t.Helper()
	s.expectStep(t, s.log.Read(t).Step+steps)
}

// stopped asks all peers of the job to end.
func (s *softmax) stopped(t *testing.T) {
	t.Helper()
	if _, stderr, status := process.Command(t, "stop", s.job.Name); status != 0 {
		t.Errorf("stop: status %d, %s", status, stderr)
	}
}

// parked returns why a peer was parked, or "" if it was not.
func (s *softmax) parked(t *testing.T) string {
	t.Helper()
	for _, e := range s.events(t) {
		if p, ok := e.Body.(event.Parked); ok {
			return p.Reason
		}
	}
	return ""
}

// letIn reports whether there was a view of the given size.
func (s *softmax) letIn(t *testing.T, members int) bool {
	t.Helper()
	return slices.ContainsFunc(s.events(t), func(e event.Event) bool {
		v, ok := e.Body.(event.View)
		return ok && len(v.Members) == members
	})
}

// times returns the step times of peer 0 by the number of members.
func (s *softmax) times(t *testing.T) map[int][]float64 {
	t.Helper()
	members, times := make(map[uint64]int), make(map[int][]float64)
	for _, e := range s.events(t) {
		switch b := e.Body.(type) {
		case event.View:
			members[e.Epoch] = len(b.Members)
		case event.Step:
			if e.Index == 0 {
				n := members[e.Epoch]
				times[n] = append(times[n], b.StepMS)
			}
		}
	}
	return times
}

// quartile returns the lower quartile of step times. Other load on the machine makes some steps
// longer, but has little effect on this quartile.
func quartile(times []float64) float64 { return quantile(times, 0.25) }

// If computation dominates, a peer that is ten times slower than four others makes steps slightly shorter, by 1 - 4/4.1. Whether
// it is admitted depends on the cost of messages on this machine at the time. If it is admitted, steps do not get longer, which
// the long form measures.
func TestSlowPeerWhereComputingCounts(t *testing.T) {
	s := startSoftmax(t, "--global-batch", pick("1024", "4096"), "--pace", "200us", "--steps", "1000000")
	s.expectStep(t, pick[int64](10, 40))
	late := s.comes(t)
	process.Until(t, "an answer to the newcomer", func() bool { return s.letIn(t, 5) || late.parked(t) != "" })
	s.goOn(t, pick[int64](10, 40))
	s.stopped(t)
	for _, e := range []*softmax{s, late} {
		if status := e.Wait(t); status != 0 {
			t.Errorf("status %d", status)
		}
	}
	times := s.times(t)
	if len(times[5]) == 0 {
		t.Logf("%d steps of %.1f ms; parked: %s", len(times[4]), quartile(times[4]), late.parked(t))
		return
	}
	before, after := quartile(times[4]), quartile(times[5])
	t.Logf("%d steps of %.1f ms with four peers, %d of %.1f ms with a fifth that is ten times slower", len(times[4]), before, len(times[5]), after)
	if long() && after > 1.05*before {
		t.Errorf("steps of %.1f ms before and %.1f ms after", before, after)
	}
}

// If a step has one microbatch for each of four members, a peer that is ten times slower is parked,
// and its elrun prints the reason. The peer could make steps shorter only if some member were
// slower than it. When the parked peer ends, the members continue.
func TestSlowPeerIsParked(t *testing.T) {
	s := startSoftmax(t, "--global-batch", "32", "--pace", "100us", "--steps", "1000000")
	s.expectStep(t, 20)
	before := s.peers(t)
	late := s.comes(t)
	// On an overloaded machine a member may be as slow as the newcomer, which is then admitted.
	// Only the long form, which requires an idle machine, requires that the newcomer is parked.
	process.Until(t, "a verdict", func() bool { return late.parked(t) != "" || !long() && s.times(t)[5] != nil })
	if late.parked(t) == "" {
		t.Log("let in: some member was slower than the newcomer")
		s.stopped(t)
		if a, b := late.Wait(t), s.Wait(t); a != 0 || b != 0 {
			t.Errorf("status %d and %d", a, b)
		}
		return
	}
	late.Expect(t, "cannot take part yet and waits: a step would take ")
	t.Logf("parked: %s", late.parked(t))
	if why := late.parked(t); !strings.Contains(why, "samples/s: the newcomer ") {
		t.Errorf("parked for %q", why)
	}
	for _, pid := range s.peers(t) {
		if !slices.Contains(before, pid) {
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	if status := late.Wait(t); status != 0 {
		t.Errorf("status %d of the newcomer", status)
	}
	s.goOn(t, 20)
	if times := s.times(t); long() && (len(times) != 1 || len(times[4]) == 0) {
		t.Errorf("steps of groups of other sizes than 4: %v", times)
	}
	s.stopped(t)
	if status := s.Wait(t); status != 0 {
		t.Errorf("status %d", status)
	}
}
