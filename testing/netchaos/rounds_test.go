package netchaos

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// slowPath returns a path like the path between two distant hosts with home connections.
func slowPath() path { return path{mbit: 20, delay: 50 * time.Millisecond} }

// Four hosts train a model of 5 MB over links of 20 Mbit/s and 50 ms each way. With local steps,
// and with means that are applied a round later, they compute at least ten times as many samples
// per second as with a sum after every step. The long form also checks that hosts compute for 95 %
// of the time, and that sums overlap the computation.
func TestLocalStepsBetweenFarHosts(t *testing.T) {
	parallel(t)
	l := newFar(t, 4, slowPath())
	dir := folder(t)
	const local = 120
	run := func(name string, steps int, delay bool, rounds int) (compute, total time.Duration) {
		compute, total = l.rounds(t, filepath.Join(dir, name), roundsTask{Params: 5_000_000 / 4, Local: steps, Delay: delay,
			Pace: 50 * time.Millisecond, Rounds: int64(3 + rounds)})
		t.Logf("%s, H = %d: a round takes %v, of which computing %v", name, steps, short(total), short(compute))
		return compute, total
	}
	compute, every := run("every step", 1, false, times(1, 6))
	sums := every - compute
	compute, total := run("a round late", local, true, times(1, 6))
	gain := local * every.Seconds() / total.Seconds()
	ratio := total.Seconds() / max(compute, sums).Seconds()
	t.Logf("%.0f times the samples a second; a round takes %.3f times the longer of computing and %v for the sums; %.1f %% of the time is computing",
		gain, ratio, short(sums), 100*compute.Seconds()/total.Seconds())
	if gain < 10 {
		t.Errorf("%.1f times the samples a second, want ten times", gain)
	}
	if !flagged[bool]("long") {
		return
	}
	alone, waiting := run("waiting", local, false, 4)
	t.Logf("%.0f times the samples a second without a delay; with it a round takes %.3f times the longer of sums and computing while nothing is sent",
		local*every.Seconds()/waiting.Seconds(), total.Seconds()/max(alone, sums).Seconds())
	if ratio > 1.05 || compute.Seconds() < 0.95*total.Seconds() {
		t.Errorf("a round takes %v, computing %v and sums %v, want at most 1.05 times the longer", total, compute, sums)
	}
}

// rounds trains on all hosts. It returns the median time of computing a round and the median time
// of a whole round, each at the host where this median is largest.
func (l *lab) rounds(t *testing.T, dir string, task roundsTask) (compute, total time.Duration) {
	t.Helper()
	b, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	h := onHosts(t, l, dir, "rounds", roundsVariable+"="+string(b), "GOMAXPROCS=1")
	var sums []string
	for i, p := range h.all {
		if status := p.Wait(t); status != 0 {
			t.Fatalf("host %d ended with status %d: %s", i, status, p.Out.String())
		}
		var got roundsResult
		if err := json.Unmarshal([]byte(p.Out.String()), &got); err != nil || len(got.Total) == 0 {
			t.Fatalf("host %d printed %q: error %v", i, p.Out.String(), err)
		}
		compute, total = max(compute, median(got.Compute)), max(total, median(got.Total))
		sums = append(sums, got.SHA256)
	}
	if len(slices.Compact(sums)) != 1 {
		t.Errorf("hosts ended with %v", sums)
	}
	return compute, total
}
