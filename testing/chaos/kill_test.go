package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
	"gonum.org/v1/gonum/stat"
)

// latency has the times between the death of a peer and the next commit.
type latency struct {
	net    time.Duration // from the death to the next commit, minus two median steps
	view   time.Duration // from the death until all survivors have agreed on the next view
	settle time.Duration // from the view until the members resume the step: they have connected and exchanged their states and contributions
	step   time.Duration // from the resumption of the step to its commit
	median time.Duration // median duration of the steps before the death
}

// One of five peers is killed at a random instant. The job finishes, no microbatch is computed twice, and every sample counts
// once.
func TestKillOneOfFive(t *testing.T) { killOneOfFive(t, spec{}, pick(5, 100)) }

// TestKillOneOfFiveLarge is TestKillOneOfFive with a million parameters, whose gradients are in
// shared memory.
func TestKillOneOfFiveLarge(t *testing.T) { killOneOfFive(t, spec{Hidden: 13_334}, pick(2, 100)) }

// killOneOfFive is the body of TestKillOneOfFive and TestKillOneOfFiveLarge. runs is the number of
// runs, unless the flag -runs is set.
func killOneOfFive(t *testing.T, s spec, runs int) {
	t.Helper()
	runs = cmp.Or(option[int]("runs"), runs)
	rng := chance(t)
	const peers = 5
	s.Samples, s.Steps, s.Pace = 20*globalBatch, 80, stepPace(10*time.Millisecond, peers)
	var all []latency
	finished := 0
	for run := range runs {
		victim, at := rng.IntN(peers), 1+rng.Int64N(s.Steps)
		offset := time.Duration(rng.Int64N(int64(20 * time.Millisecond)))
		ok := t.Run(fmt.Sprintf("%d/peer=%d/step=%d", run, victim, at), func(t *testing.T) {
			j := start(t, s, peers, transportFlags()...)
			j.until(t, "a step", func() bool { return j.step() > 0 && j.identity(victim) != "" })
			id, pid := j.identity(victim), j.elruns[0].peer(t, victim).PID
			j.until(t, "the step", func() bool { return j.step() >= at || j.finished() })
			j.pause(t, offset)
			killed := j.kill(t, pid, syscall.SIGKILL)
			j.finish(t)
			if n := recomputed(j.events()); n != 0 {
				t.Errorf("survivors computed %d microbatches twice", n)
			}
			if err := checkLedger(j.spec, j.events()); err != nil {
				t.Error(err)
			}
			if l, ok := measure(j.events(), []string{id}, killed); ok {
				all = append(all, l)
			}
		})
		if ok {
			finished++
		}
	}
	t.Logf("%d of %d runs finished", finished, runs)
	report(t, 1, peers, all)
}

// identity returns the short ID of a peer of the first elrun, by its index.
func (j *job) identity(index int) string {
	for _, e := range slices.Backward(j.elruns[0].Events) {
		if _, ok := e.Body.(event.Step); ok && e.Index == index {
			return e.Peer
		}
	}
	return ""
}

// measure returns the times of the slowest survivor, from the event log. ok is false if the victims
// died so late that some survivor has not reported two steps since. A peer reports a step when the
// next step is committed. So its first report in the new epoch marks its first commit in this
// epoch.
func measure(events []event.Event, victims []string, killed time.Time) (l latency, ok bool) {
	views, steps := process.After[event.View](events, killed), process.After[event.Step](events, killed)
	views = slices.DeleteFunc(views, func(e event.Event) bool {
		return slices.ContainsFunc(victims, func(id string) bool { return slices.Contains(e.Body.(event.View).Members, id) })
	})
	if len(views) == 0 {
		return l, false
	}
	l.median = medianStep(events, killed)
	survivors := views[0].Body.(event.View).Members
	for _, id := range survivors {
		by := func(e event.Event) bool { return e.Peer == id }
		v := slices.IndexFunc(views, by)
		if v < 0 {
			return l, false
		}
		own := slices.DeleteFunc(slices.Clone(steps), func(e event.Event) bool { return !by(e) || e.Time.Before(views[v].Time) })
		if len(own) < 2 { // the second report has the duration of the step whose commit the first report marks
			return l, false
		}
		commit, step := own[0].Time.Sub(killed), own[1].Body.(event.Step)
		if net := commit - 2*l.median; net > l.net || l.step == 0 {
			l.net, l.view = net, views[v].Time.Sub(killed)
			l.step = time.Duration(step.StepMS * float64(time.Millisecond))
			l.settle = commit - l.view - l.step
		}
	}
	return l, true
}

// medianStep returns the median duration of the steps before an instant.
func medianStep(events []event.Event, before time.Time) time.Duration {
	var all []time.Duration
	for _, e := range events {
		if s, ok := e.Body.(event.Step); ok && e.Time.Before(before) {
			all = append(all, time.Duration(s.StepMS*float64(time.Millisecond)))
		}
	}
	return quantile(all, 0.5)
}

// quantile returns the smallest element that is at least as large as a fraction p of all elements.
func quantile(all []time.Duration, p float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	ns := make([]float64, len(all))
	for i, d := range all {
		ns[i] = float64(d)
	}
	slices.Sort(ns)
	return time.Duration(stat.Quantile(p, stat.Empirical, ns, nil))
}

// column is a time that is measured in each run, with its name in the table.
type column[T any] struct {
	name string
	of   func(T) time.Duration
}

// reportColumns logs the times of all runs as a table.
func reportColumns[T any](t *testing.T, what string, all []T, columns []column[T]) {
	t.Helper()
	if len(all) == 0 {
		return
	}
	var lines strings.Builder
	for _, c := range columns {
		var times []time.Duration
		for _, x := range all {
			times = append(times, c.of(x))
		}
		ms := func(p float64) float64 { return quantile(times, p).Seconds() * 1000 }
		fmt.Fprintf(&lines, "%-44s p50 %6.1f ms  p95 %6.1f ms  worst %6.1f ms\n", c.name, ms(0.5), ms(0.95), ms(1))
	}
	t.Logf("%s:\n%s", what, &lines)
}

// report logs the times from the deaths to the next commits.
func report(t *testing.T, killed, of int, all []latency) {
	t.Helper()
	reportColumns(t, fmt.Sprintf("%d kills of %d of %d peers before the last step", len(all), killed, of), all, []column[latency]{
		{"kill to next commit, less two median steps", func(l latency) time.Duration { return l.net }},
		{"  kill to view", func(l latency) time.Duration { return l.view }},
		{"  view to begin of step", func(l latency) time.Duration { return l.settle }},
		{"  step", func(l latency) time.Duration { return l.step }},
		{"median step before", func(l latency) time.Duration { return l.median }},
	})
}

func TestQuantile(t *testing.T) {
	all := []time.Duration{4, 1, 3, 2}
	for p, want := range map[float64]time.Duration{0: 1, 0.25: 1, 0.5: 2, 0.51: 3, 0.95: 4, 1: 4} {
		if got := quantile(all, p); got != want {
			t.Errorf("quantile %v is %d, want %d", p, got, want)
		}
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("quantile of nothing is %v", got)
	}
}
