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

// narrowLink is the rate between the hosts in the tests of overlap, in Mbit/s.
const narrowLink = 200

// narrow gives what each host sends a rate. Packets leave in bunches of up to 64 KiB, as a
// network card takes them that cuts them up itself: the processors of the hosts, which are to
// compute, emulate the link as well, and a virtual machine may need 25 us for each interrupt
// with which a bunch begins.
func (l *lab) narrow(t *testing.T, mbit int) {
	t.Helper()
	if _, err := exec.LookPath("tc"); err != nil {
		missing(t, "no tc: install it (Debian: apt-get install iproute2)")
	}
	for _, h := range l.hosts {
		h.inside(t, fmt.Sprintf("qdisc add dev eth0 root tbf rate %dmbit burst 68k latency 50ms\n", mbit), "tc", "-batch", "-")
	}
}

// Two peers on two hosts, each with one processor: gradients travel while others are still
// being computed. The long form shows how long steps take.
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

// overlaps wants most gradients to leave the host before the backward pass is over: it does
// not go on before.
func (l *lab) overlaps(t *testing.T, exactly bool) {
	t.Helper()
	task := overlapTask{Model: "cnn", Share: 16, Cuts: 2, Steps: 5, Exact: exactly, Hold: true}
	got := l.run(t, filepath.Join(folder(t), fmt.Sprintf("hold-%t", exactly)), both, task)
	if got[0].SHA256 == "" || got[0].SHA256 != got[1].SHA256 {
		t.Errorf("exact %t: sha256 %q and %q", exactly, got[0].SHA256, got[1].SHA256)
	}
	for i, r := range got {
		if want := int(task.Steps - 1); exactly && r.Early != 0 || !exactly && r.Early != want {
			t.Errorf("exact %t: %d steps of host %d have begun early, want %d without exact mode", exactly, r.Early, i, want)
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

// overlapCase is a kind of step, of which the time is shown beside that of its parts.
type overlapCase struct {
	name  string
	model string
	ratio float64 // of communication to computing
	cuts  int     // microbatches of a share
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

// trialShare is the share of which the time is taken first to find how large it has to be.
const trialShare = 128

// measure shows what steps take, and their parts, in turns.
func (c overlapCase) measure(t *testing.T, l *lab) {
	if runtime.NumCPU() < 2 {
		t.Skip("the two peers need a processor each")
	}
	dir := folder(t)
	task := overlapTask{Model: c.model, Share: trialShare, Cuts: c.cuts, Steps: 15, Exact: c.exact, Ahead: true}
	moving := together(l.run(t, filepath.Join(dir, "trial-wire"), wire, task)).Wait
	for range 2 { // shares are so large that the ratio is that of the case
		computing := together(l.run(t, filepath.Join(dir, "trial-alone"), alone, task)).Step
		task.Share = max(int(float64(task.Share)*moving.Seconds()/computing.Seconds()/c.ratio)/c.cuts, 1) * c.cuts
	}
	// Cores of a virtual machine change their speed by a third from one second to the next, so
	// that phases are short and take turns many times.
	var m measured
	for round := range times(3, 15) {
		phase := func(name string) phaseResult {
			return together(l.run(t, filepath.Join(dir, fmt.Sprint(name, round)), name, task))
		}
		one, moving, whole := phase(alone), phase(wire), phase(both)
		if c.exact { // no parameter is there before the step is committed
			for i := range one.Needs {
				one.Needs[i].At = 0
			}
		}
		m.add(one, moving, whole)
	}
	t.Logf("%s, share of %d samples: %v", c.name, task.Share, m)
}

// measured are the times of the phases of a case, by round.
type measured struct {
	computing, communication, both, idle []time.Duration
	ratios, ideals                       []float64
}

// add adds a round.
func (m *measured) add(one, moving, whole phaseResult) {
	m.computing, m.communication = append(m.computing, one.Step), append(m.communication, moving.Wait)
	m.both, m.idle = append(m.both, whole.Step), append(m.idle, whole.Idle)
	longer := max(one.Step, moving.Wait).Seconds()
	m.ratios = append(m.ratios, whole.Step.Seconds()/longer)
	m.ideals = append(m.ideals, ideal(one, moving.Wait).Seconds()/longer)
}

// String has the ratio of the medians, and the quartiles of those of the rounds.
func (m measured) String() string {
	computing, communication, both := median(m.computing), median(m.communication), median(m.both)
	slices.Sort(m.ratios)
	slices.Sort(m.ideals)
	n := len(m.ratios)
	return fmt.Sprintf("computing %v, communication %v (%.2f), both %v, in %v of it both wait: %.3f times the longer (%.3f-%.3f); at best, one microbatch after the other, %.3f",
		short(computing), short(communication), communication.Seconds()/computing.Seconds(), short(both), short(median(m.idle)),
		both.Seconds()/max(computing, communication).Seconds(), m.ratios[n/4], m.ratios[n*3/4], m.ideals[n/2])
}

// phaseResult is what both peers have measured in a phase. Times are medians over its
// steps.
type phaseResult struct {
	Step   time.Duration // of the peer that is slower in it
	Wait   time.Duration // of the peer that waits longer
	Idle   time.Duration // while which both wait
	Pieces []piece
	Needs  []piece
}

// together returns the result of both peers. Neither goes on to the next step before the other,
// so each step takes as long as the slower one.
func together(of [2]overlapResult) phaseResult {
	a, b := of[0], of[1]
	r := phaseResult{Step: pairwise(a.Steps, b.Steps, later), Wait: pairwise(a.Waits, b.Waits, later), Idle: pairwise(a.Waits, b.Waits, earlier)}
	r.Pieces, r.Needs = slower(a.Pieces, b.Pieces), slower(a.Needs, b.Needs)
	return r
}

// slower has of each piece the later time.
func slower(a, b []piece) (all []piece) {
	for k, p := range a {
		p.At = max(p.At, b[k].At)
		all = append(all, p)
	}
	return all
}

func later(a, b time.Duration) time.Duration   { return max(a, b) }
func earlier(a, b time.Duration) time.Duration { return min(a, b) }

// pairwise returns the median of what pick returns for each pair.
func pairwise(a, b []time.Duration, pick func(a, b time.Duration) time.Duration) time.Duration {
	var all []time.Duration
	for k := range min(len(a), len(b)) {
		all = append(all, pick(a[k], b[k]))
	}
	return median(all)
}

// short drops what is not worth reading.
func short(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
