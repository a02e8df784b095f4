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

// narrow gives what each host sends a rate. Packets leave in bunches of up to 16, as from a
// network card that cuts them up itself: one by one they would cost the processors of the
// hosts, which are to compute, more than encryption does.
func (l *lab) narrow(t *testing.T, mbit int) {
	t.Helper()
	if _, err := exec.LookPath("tc"); err != nil {
		missing(t, "no tc: install it (Debian: apt-get install iproute2)")
	}
	for _, h := range l.hosts {
		h.inside(t, fmt.Sprintf("qdisc add dev eth0 root tbf rate %dmbit burst 32k latency 50ms\n", mbit), "tc", "-batch", "-")
		h.inside(t, "", "ip", "link", "set", "eth0", "gso_max_segs", "16")
	}
}

// Two peers on two hosts, each with one processor: gradients travel while others are still
// being computed. The long form shows how long steps take.
func TestOverlap(t *testing.T) {
	parallel(t)
	l := newLab(t, 2)
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
		if status := p.wait(t); status != 0 {
			t.Fatalf("host %d ended with status %d", i, status)
		}
		if err := json.Unmarshal([]byte(p.out.String()), &got[i]); err != nil {
			t.Fatalf("host %d printed %q: %v", i, p.out.String(), err)
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
		overlapCase{"cnn/0.5-in-8", "cnn", 0.5, 8, false})
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
	moving := slowest(l.run(t, filepath.Join(dir, "trial-wire"), wire, task)).Wait
	for range 2 { // shares are so large that the ratio is that of the case
		computing := slowest(l.run(t, filepath.Join(dir, "trial-alone"), alone, task)).Step
		task.Share = max(int(float64(task.Share)*moving.Seconds()/computing.Seconds()/c.ratio)/c.cuts, 1) * c.cuts
	}
	task.Steps = 25

	var ratios, ideals []float64
	for round := range times(3, 5) {
		phase := func(name string) overlapResult {
			return slowest(l.run(t, filepath.Join(dir, fmt.Sprint(name, round)), name, task))
		}
		one, idle, whole := phase(alone), phase(wire), phase(both)
		longer := max(one.Step, idle.Wait).Seconds()
		ratios = append(ratios, whole.Step.Seconds()/longer)
		if c.exact { // no parameter is there before the step is committed
			clear(one.Needs)
		}
		ideals = append(ideals, ideal(one, idle.Wait).Seconds()/longer)
		t.Logf("share of %d samples: computing %v, communication %v (%.2f), both %v: %.3f times the longer; %v of it waiting; at best %.3f",
			task.Share, short(one.Step), short(idle.Wait), idle.Wait.Seconds()/one.Step.Seconds(),
			short(whole.Step), ratios[round], short(whole.Wait), ideals[round])
	}
	slices.Sort(ratios)
	slices.Sort(ideals)
	t.Logf("%s: %.3f times the longer of computing and communication (%.3f to %.3f); at best %.3f",
		c.name, ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1], ideals[len(ideals)/2])
}

// slowest returns of two results the longer times; the rest is the same in both.
func slowest(both [2]overlapResult) overlapResult {
	r := both[0]
	r.Step, r.Wait = max(r.Step, both[1].Step), max(r.Wait, both[1].Wait)
	for k, p := range both[1].Pieces {
		r.Pieces[k].At = max(r.Pieces[k].At, p.At)
	}
	for i, at := range both[1].Needs {
		r.Needs[i] = max(r.Needs[i], at)
	}
	return r
}

// short drops what is not worth reading.
func short(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
