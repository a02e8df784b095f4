package netchaos

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/perfetto"
	"github.com/elrun/elrun/testing/process"
)

// The hosts of a lab have one clock, so that the offset which elrun measures between two of them is the error of the measurement:
// at most half of the round trip, also if packets take longer one way. A trace shows the steps of both hosts at
// the times at which they were, up to this error.
func TestClockError(t *testing.T) {
	for _, c := range []struct {
		name        string
		there, back time.Duration
	}{{"equal", 10 * time.Millisecond, 10 * time.Millisecond}, {"uneven", 20 * time.Millisecond, 0}} {
		t.Run(c.name, func(t *testing.T) {
			l := newUneven(t, path{mbit: 500, delay: c.there}, path{mbit: 500, delay: c.back})
			j := newJob(t, l, settings{pace: 5 * time.Millisecond})
			j.startAll(t)
			j.compareClocks(t, c.there+c.back)
			j.finish(t)
			j.compareTrace(t)
		})
	}
}

// clocks returns the events Clock of a host.
func (j *job) clocks(t *testing.T, host int) (all []event.Clock) {
	t.Helper()
	for _, e := range j.elruns[host].Read(t).Events {
		if b, ok := e.Body.(event.Clock); ok {
			all = append(all, b)
		}
	}
	return all
}

// compareClocks waits until both hosts have measured, and compares the offsets with the truth, which is 0. A round trip takes
// at least as long as the packets.
func (j *job) compareClocks(t *testing.T, least time.Duration) {
	t.Helper()
	for host := range j.elruns {
		process.Until(t, "a measured offset", func() bool { return len(j.clocks(t, host)) > 0 })
		for _, c := range j.clocks(t, host) {
			t.Logf("host %d: the error is %.3f ms, its bound %.3f ms", host, c.OffsetMS, c.ErrorMS)
			if c.ErrorMS < least.Seconds()*500 || math.Abs(c.OffsetMS) > c.ErrorMS {
				t.Errorf("host %d: %+v: want an error up to half of the round trip of %v or more", host, c, least)
			}
		}
	}
}

// compareTrace compares the times of steps in a trace with those in the logs of the hosts, which have one clock.
func (j *job) compareTrace(t *testing.T) {
	t.Helper()
	file := filepath.Join(j.dir, "all.pftrace")
	args := []string{"trace", "-o", file}
	began, bound := make(map[string]map[string]time.Time), time.Duration(0)
	for host, e := range j.elruns {
		args = append(args, e.Path)
		for _, c := range j.clocks(t, host) {
			bound = max(bound, time.Duration(c.ErrorMS*1e6)+time.Microsecond)
		}
		for _, ev := range e.Read(t).Events {
			s, ok := ev.Body.(event.Step)
			if !ok || s.Began.IsZero() {
				continue
			}
			if began[ev.Peer] == nil {
				began[ev.Peer] = make(map[string]time.Time)
			}
			began[ev.Peer][fmt.Sprintf("step %d", ev.Step)] = s.Began
		}
	}
	if _, stderr, status := process.Command(t, args...); status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	trace, err := perfetto.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	for id, times := range began {
		worst, n := time.Duration(0), 0
		for _, s := range stepsOf(trace, id) {
			if at, is := times[s.Name]; is {
				worst = max(worst, time.Duration(int64(s.Begin)-at.UnixNano()).Abs())
				n++
			}
		}
		t.Logf("%s: %d steps, the error is up to %v, its bound %v", id, n, worst, bound)
		if n == 0 || worst > bound {
			t.Errorf("%s: %d steps of %d, with an error up to %v, want %v at most", id, n, len(times), worst, bound)
		}
	}
}

// stepsOf returns the slices of a peer's thread.
func stepsOf(trace *perfetto.Trace, id string) (all []*perfetto.Event) {
	for _, track := range trace.Of("", "step") {
		for _, p := range trace.Tracks {
			if p.ID == track.Parent && strings.Contains(p.Name, id) {
				all = append(all, track.Events...)
			}
		}
	}
	return all
}
