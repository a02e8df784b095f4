package e2e

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/loadbal"
)

// check checks the properties that every job has under any load of the machine. No sample is
// missing or counted twice. The peers have equal weights. The policy derives the shares from the
// measured times. The log has a reason for every change.
func (r *trained) check(t *testing.T, policy string) {
	t.Helper()
	digests := 0
	for i := range r.steps[0] {
		if err := r.whole(i); err != nil {
			t.Errorf("step %d: %v", i+1, err)
		}
		if r.steps[0][i].Digest != "" {
			digests++
		}
	}
	if digests == 0 {
		t.Error("no step has a digest of the weights")
	}
	for _, s := range r.told {
		if s.Reason == "" || slices.Equal(s.Old, s.New) {
			t.Errorf("shares %+v", s)
		}
	}
	r.replay(t, policy)
}

// whole checks that the peers' parts contain each microbatch of a step once, and that the peers
// have equal weights after the step.
func (t *trained) whole(step int) error {
	var parts [][2]int
	first, samples := t.steps[0][step], 0
	for _, of := range t.steps {
		s := of[step]
		parts = append(parts, s.Microbatches...)
		samples += s.ShareSamples
		if s.Digest != first.Digest || s.Samples != first.Samples || s.Loss != first.Loss {
			return fmt.Errorf("one peer has %+v, another one %+v", first, s)
		}
	}
	slices.SortFunc(parts, func(a, b [2]int) int { return a[0] - b[0] })
	next := 0
	for _, p := range parts {
		if p[0] != next {
			return fmt.Errorf("microbatches %v", parts)
		}
		next = p[1]
	}
	if samples != first.Samples {
		return fmt.Errorf("%d samples of %d", samples, first.Samples)
	}
	return nil
}

// replay feeds the times in the log to a policy, which must return the shares in the log. It ends
// at the first change of members, because the log does not have the costs with which the policy
// begins in the next view.
func (r *trained) replay(t *testing.T, policy string) {
	t.Helper()
	p, err := loadbal.New(policy)
	if err != nil {
		t.Fatal(err)
	}
	p.Begin(make([]int64, len(r.steps)))
	var reports []loadbal.Report
	for i := 0; i < len(r.epochs) && r.epochs[i] == r.epochs[0]; i++ {
		got, sum := r.shares(i), 0
		for _, b := range got {
			sum += b
		}
		want, _ := p.Next(reports, sum)
		if !slices.Equal(got, want) {
			t.Errorf("step %d: shares %v, want %v after %+v", i+1, got, want, reports)
			return
		}
		reports = nil
		for index, of := range r.steps {
			reports = append(reports, loadbal.Report{Share: got[index], Micros: micros(of[i])})
		}
	}
}

// micros returns the computing time of a peer in a step in microseconds, rounded as in the peer's
// report to the other peers.
func micros(s event.Step) int64 {
	return max(1, int64(math.Round(s.ComputeMS*1e6))/1000)
}

// pace returns the median time of a microbatch at a peer over a range of steps, in milliseconds.
func (t *trained) pace(index, from, to int) float64 {
	var all []float64
	for i := from; i < to; i++ {
		if b := t.shares(i)[index]; b > 0 {
			all = append(all, t.steps[index][i].ComputeMS/float64(b))
		}
	}
	return median(all)
}

// part returns the fraction of all microbatches that a peer has computed in a range of steps.
func (t *trained) part(index, from, to int) float64 {
	mine, all := 0, 0
	for i := from; i < to; i++ {
		for at, b := range t.shares(i) {
			all += b
			if at == index {
				mine += b
			}
		}
	}
	return float64(mine) / float64(all)
}

// leans checks that a slow peer has computed less than an equal part in a range of steps. It checks
// nothing if the slow peer took less than twice the time of some other peer for a microbatch,
// because then the machine was loaded.
func (r *trained) leans(t *testing.T, slow, from, to int) error {
	t.Helper()
	pace, part := r.pace(slow, from, to), r.part(slow, from, to)
	t.Logf("steps %d to %d: peer %d took %.2f ms a microbatch and computed %.3f of all", from+1, to, slow, pace, part)
	for i := range r.steps {
		if other := r.pace(i, from, to); i != slow && pace < 2*other {
			t.Logf("that is less than twice the %.2f ms of peer %d: the machine is too busy to tell", other, i)
			return nil
		}
	}
	if part >= 1/float64(len(r.steps)) {
		return fmt.Errorf("the slow peer computed %.3f of all in steps %d to %d", part, from+1, to)
	}
	return nil
}
