package netchaos

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// Most tests of this package run five peers, whose steps take 100 ms.
const (
	groupSize = 5
	groupPace = 25 * time.Millisecond
	// detection is the maximum time until the other peers have a view without a silent peer. Only
	// the long form, in which nothing else runs, checks this.
	detection = 2 * time.Second
)

// fault is a way to make one host silent for some time.
type fault struct {
	name   string
	inject func(t *testing.T, j *job, victim int)
	heal   func(t *testing.T, j *job, victim int)
}

// faults returns the faults in which a host is silent although its peer lives.
func faults() []fault {
	heal := func(t *testing.T, j *job, _ int) { t.Helper(); j.lab.heal(t) }
	holes := func(hears, speaks bool) func(*testing.T, *job, int) {
		return func(t *testing.T, j *job, victim int) {
			t.Helper()
			var cut []hole
			for other := range j.lab.hosts {
				if other != victim && !hears {
					cut = append(cut, hole{other, victim})
				}
				if other != victim && !speaks {
					cut = append(cut, hole{victim, other})
				}
			}
			j.lab.cut(t, cut)
		}
	}
	signal := func(sig syscall.Signal) func(*testing.T, *job, int) {
		return func(t *testing.T, j *job, victim int) {
			t.Helper()
			process.Signal(t, j.peer(t, victim), sig)
		}
	}
	return []fault{
		{"stopped", signal(syscall.SIGSTOP), signal(syscall.SIGCONT)},
		{"black hole", holes(false, false), heal},
		{"mute", holes(true, false), heal},
		{"deaf", holes(false, true), heal},
	}
}

// A peer that becomes silent is put out, within two seconds if nothing else runs, and no other peer
// is put out. After the fault the peer reports that it was put out, and joins again with another
// ID.
func TestDetect(t *testing.T) {
	parallel(t)
	j := newJob(t, newLab(t, groupSize), settings{pace: groupPace})
	j.startAll(t)
	for _, f := range faults() {
		var all []time.Duration
		for run := range times(1, 20) {
			all = append(all, detect(t, j, f, run%groupSize))
		}
		slices.Sort(all)
		t.Logf("%-10s  %d times: out after p50 %4d ms, worst %4d ms", f.name, len(all),
			all[len(all)/2].Milliseconds(), all[len(all)-1].Milliseconds())
	}
	j.finish(t)
}

// detect makes a fault, and returns the time until all other peers had a view without the victim.
func detect(t *testing.T, j *job, f fault, victim int) time.Duration {
	t.Helper()
	ids := j.untilWhole(t, time.Now())
	at := time.Now()
	f.inject(t, j, victim)
	struck := time.Now()
	var out time.Time
	for other, e := range j.elruns {
		if other == victim {
			continue
		}
		process.Until(t, fmt.Sprintf("%s host %d: a view without it at host %d", f.name, victim, other), func() bool {
			e, ok := first(t, e.journal, at, without(ids[victim]))
			if ok && e.Time.After(out) {
				out = e.Time
			}
			return ok
		})
		if e, ok := first(t, e.journal, at, func(_ event.Event, v event.View) bool { return !hasAll(v.Members, ids, victim) }); ok {
			t.Errorf("%s host %d: host %d has put out others: %v of %v", f.name, victim, other, e.Body, ids)
		}
	}
	took := out.Sub(struck)
	if took > detection && flagged[bool]("long") { // only the long form has an idle machine
		t.Errorf("%s host %d: out after %v, want at most %v", f.name, victim, took, detection)
	}
	before := j.steps(t, others(len(ids), victim))
	process.Until(t, f.name+": steps without the victim", func() bool { return j.steps(t, others(len(ids), victim)) > before+3 })
	f.heal(t, j, victim)
	healed := time.Now()
	back := j.untilWhole(t, healed)
	t.Logf("%-10s  host %d: out after %4d ms, back %4d ms after it is heard again", f.name, victim, took.Milliseconds(), time.Since(healed).Milliseconds())
	if back[victim] == ids[victim] {
		t.Errorf("%s host %d: it came back as %s, which was put out", f.name, victim, back[victim])
	}
	if _, ok := first(t, j.elruns[victim].journal, at, func(e event.Event, b event.Fenced) bool { return e.Peer == ids[victim] }); !ok {
		t.Errorf("%s host %d: %s does not report that it was put out", f.name, victim, ids[victim])
	}
	return took
}

// hasAll reports whether members contains the IDs of all hosts except host but.
func hasAll(members, ids []string, but int) bool {
	for host, id := range ids {
		if host != but && !slices.Contains(members, id) {
			return false
		}
	}
	return true
}

// others returns the numbers from 0 to n-1 without the numbers in but.
func others(n int, but ...int) []int {
	var out []int
	for i := range n {
		if !slices.Contains(but, i) {
			out = append(out, i)
		}
	}
	return out
}
