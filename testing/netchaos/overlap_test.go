package netchaos

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
)

// narrowLink is the rate between hosts in the tests of overlap, in Mbit/s.
const narrowLink = 200

// narrow limits the rate at which each host sends. Packets leave in bursts of up to 64 KiB, as with
// a network card that segments packets itself. The processors that compute also emulate the link.
// Each burst begins with an interrupt, which is slow on a virtual machine, so bursts are long.
func (l *lab) narrow(t *testing.T, mbit int) {
	t.Helper()
	if _, err := exec.LookPath("tc"); err != nil {
		missing(t, "no tc: install it (Debian: apt-get install iproute2)")
	}
	for _, h := range l.hosts {
		h.inside(t, fmt.Sprintf("qdisc add dev eth0 root tbf rate %dmbit burst 68k latency 50ms\n", mbit), "tc", "-batch", "-")
	}
}

// Two peers run on two hosts, each with one processor. Gradients are sent while other gradients are
// still being computed. The long form logs the times of steps.
func TestOverlap(t *testing.T) {
	parallel(t)
	l := newCable(t)
	l.narrow(t, narrowLink)
	for _, exactly := range []bool{false, true} {
		l.overlaps(t, exactly)
	}
	if flagged[bool]("long") {
		for _, c := range overlapCases() {
			t.Run(c.name, func(t *testing.T) { c.measure(t, l) })
		}
	}
}

// overlaps checks that most gradients leave the host before the backward pass ends. The backward
// pass waits until they have, so without overlap the test fails.
func (l *lab) overlaps(t *testing.T, exactly bool) {
	t.Helper()
	task := overlapTask{Model: "cnn", Share: 16, Cuts: 2, Steps: 5, Exact: exactly, Hold: true}
	got := l.run(t, filepath.Join(folder(t), fmt.Sprintf("hold-%t", exactly)), both, task)
	if got[0].SHA256 == "" || got[0].SHA256 != got[1].SHA256 {
		t.Errorf("exact %t: sha256 %q and %q", exactly, got[0].SHA256, got[1].SHA256)
	}
	for i, r := range got {
		if want := int(task.Steps - 1); exactly && r.EarlySteps != 0 || !exactly && r.EarlySteps != want {
			t.Errorf("exact %t: %d steps of host %d have begun early, want %d without exact mode", exactly, r.EarlySteps, i, want)
		}
	}
}

// run runs a phase of a task on both hosts, each with one processor.
func (l *lab) run(t *testing.T, dir, phase string, task overlapTask) (got [2]overlapResult) {
	t.Helper()
	task.Phase = phase
	b, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	h := onHosts(t, l, dir, "overlap", overlapVariable+"="+string(b), "GOMAXPROCS=1")
	for i, p := range h.all {
		if status := p.Wait(t); status != 0 {
			t.Fatalf("host %d ended with status %d", i, status)
		}
		if err := json.Unmarshal([]byte(p.Out.String()), &got[i]); err != nil {
			t.Fatalf("host %d printed %q: %v", i, p.Out.String(), err)
		}
	}
	return got
}

// overlapCase is a kind of step whose time is compared with the times of its computation and its
// communication.
type overlapCase struct {
	name  string
	model string
	ratio float64 // time of communication divided by time of computation
	cuts  int     // microbatches in a share
	exact bool
}

func overlapCases() []overlapCase {
	var all []overlapCase
	for _, model := range []string{"cnn", "mlp"} {
		for _, ratio := range []float64{0.25, 0.5, 0.75, 1, 2, 4} {
			all = append(all, overlapCase{fmt.Sprintf("%s/%v", model, ratio), model, ratio, 1, false})
		}
	}
	return append(all,
		overlapCase{"cnn/0.5-exact", "cnn", 0.5, 1, true},
		overlapCase{"cnn/0.5-in-2", "cnn", 0.5, 2, false},
		overlapCase{"cnn/0.5-in-8", "cnn", 0.5, 8, false},
		overlapCase{"cnn/0.5-in-8-exact", "cnn", 0.5, 8, true})
}

// trialShare is the share of the first measurement, from which the share with the wanted ratio is calculated.
const trialShare = 128

// measure logs the times of the three phases of a case, which it measures alternately.
func (o overlapCase) measure(t *testing.T, l *lab) {
	if runtime.NumCPU() < 2 {
		t.Skip("the two peers need a processor each")
	}
	dir := folder(t)
	task := overlapTask{Model: o.model, Share: trialShare, Cuts: o.cuts, Steps: 15, Exact: o.exact, Ahead: true}
	moving := together(l.run(t, filepath.Join(dir, "trial-wire"), wire, task)).Wait
	for range 2 { // adjusts the share until the ratio is near o.ratio
		computing := together(l.run(t, filepath.Join(dir, "trial-alone"), alone, task)).Step
		task.Share = max(int(float64(task.Share)*moving.Seconds()/computing.Seconds()/o.ratio)/o.cuts, 1) * o.cuts
	}
	// The speed of a virtual machine's cores may change within a second. Therefore phases are
	// short, and alternate many times.
	var m measured
	for round := range times(3, 15) {
		phase := func(name string) phaseResult {
			return together(l.run(t, filepath.Join(dir, fmt.Sprint(name, round)), name, task))
		}
		one, moving, whole := phase(alone), phase(wire), phase(both)
		if o.exact { // in exact mode a parameter can be read only after the commit
			for i := range one.Needs {
				one.Needs[i].At = 0
			}
		}
		m.add(one, moving, whole)
	}
	t.Logf("%s, share of %d samples: %v", o.name, task.Share, m)
}

// measured has the times of the phases of a case, by round.
type measured struct {
	computing, communication, both, idle []time.Duration
	ratios, ideals                       []float64
}

// add adds the results of a round.
func (m *measured) add(one, moving, whole phaseResult) {
	m.computing, m.communication = append(m.computing, one.Step), append(m.communication, moving.Wait)
	m.both, m.idle = append(m.both, whole.Step), append(m.idle, whole.Idle)
	longer := max(one.Step, moving.Wait).Seconds()
	m.ratios = append(m.ratios, whole.Step.Seconds()/longer)
	m.ideals = append(m.ideals, ideal(one, moving.Wait).Seconds()/longer)
}

// String returns the medians of the times, the ratio of the medians, and the quartiles of the
// ratios of all rounds.
func (m measured) String() string {
	computing, communication, both := median(m.computing), median(m.communication), median(m.both)
	slices.Sort(m.ratios)
	slices.Sort(m.ideals)
	n := len(m.ratios)
	return fmt.Sprintf("computing %v, communication %v (%.2f), both %v, in %v of it both wait: %.3f times the longer (%.3f-%.3f); at best, one microbatch after the other, %.3f",
		short(computing), short(communication), communication.Seconds()/computing.Seconds(), short(both), short(median(m.idle)),
		both.Seconds()/max(computing, communication).Seconds(), m.ratios[n/4], m.ratios[n*3/4], m.ideals[n/2])
}

// phaseResult has the measurements of both peers in a phase. Times are medians over the steps of
// the phase.
type phaseResult struct {
	Step   time.Duration // of the peer whose steps are slower
	Wait   time.Duration // of the peer that waits longer
	Idle   time.Duration // time in which both peers wait
	Pieces []piece
	Needs  []piece
}

// together combines the results of both peers. The peers begin each step together, so the time of a
// step is its time at the slower peer.
func together(of [2]overlapResult) phaseResult {
	a, b := of[0], of[1]
	r := phaseResult{Step: pairwise(a.Steps, b.Steps, later), Wait: pairwise(a.Waits, b.Waits, later), Idle: pairwise(a.Waits, b.Waits, earlier)}
	r.Pieces, r.Needs = slower(a.Pieces, b.Pieces), slower(a.Needs, b.Needs)
	return r
}

// slower returns the pieces, each with the later of its times at the two peers.
func slower(a, b []piece) (all []piece) {
	for k, p := range a {
		p.At = max(p.At, b[k].At)
		all = append(all, p)
	}
	return all
}

func later(a, b time.Duration) time.Duration   { return max(a, b) }
func earlier(a, b time.Duration) time.Duration { return min(a, b) }

// pairwise returns the median of pick(a[k], b[k]) over all k.
func pairwise(a, b []time.Duration, pick func(a, b time.Duration) time.Duration) time.Duration {
	var all []time.Duration
	for k := range min(len(a), len(b)) {
		all = append(all, pick(a[k], b[k]))
	}
	return median(all)
}

// short rounds a duration for the log.
func short(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
