package shm

import (
	"testing"
	"time"
)

// run makes calls, each of which takes cost(call, mode). It returns how many calls used each mode.
func (s *storeChooser) run(calls int, cost func(call int, w storeMode) time.Duration) (of [storeModes]int) {
	for k := range calls {
		w := s.choose()
		s.record(w, 1000, cost(k, w))
		of[w]++
	}
	return of
}

// costs returns a cost function in which each mode always takes the same time.
func costs(claim, pass time.Duration) func(int, storeMode) time.Duration {
	return func(_ int, w storeMode) time.Duration { return [storeModes]time.Duration{claim, pass}[w] }
}

// mostly checks that nearly all calls used mode s, but not all.
func (s storeMode) mostly(t *testing.T, what string, of [storeModes]int) {
	t.Helper()
	if calls := of[0] + of[1]; of[s] < calls-calls/16 || of[s] == calls {
		t.Errorf("%s: way %d in %d of %d calls, want it in most and not in all", what, s, of[s], calls)
	}
}

// The chooser finds the faster mode, also after the other mode was faster before, and probes the
// slower mode from time to time.
func TestChooserFollows(t *testing.T) {
	var p storeChooser
	if of := p.run(warmupCalls, costs(20, 30)); of[cached] != warmupCalls/2 || of[nonTemporal] != warmupCalls/2 {
		t.Errorf("at first: %v calls by the ways, want %d each", of, warmupCalls/2)
	}
	for _, step := range []struct {
		what        string
		claim, pass time.Duration
		want        storeMode
	}{
		{"cores are near", 20, 30, cached},
		{"cores are far", 50, 35, nonTemporal},
		{"cores are near again", 20, 30, cached},
		{"past the caches is faster than ever", 20, 15, nonTemporal},
	} {
		p.run(3*probeEvery, costs(step.claim, step.pass))
		step.want.mostly(t, step.what, p.run(10*probeEvery, costs(step.claim, step.pass)))
	}
}

// Interrupted calls, which take much longer, do not mislead the chooser. Neither does the first call.
func TestChooserIgnoresInterruptions(t *testing.T) {
	var p storeChooser
	disturbed := func(k int, w storeMode) time.Duration {
		if k == 0 || k%7 == 5 {
			return 5000
		}
		return costs(20, 30)(k, w)
	}
	cached.mostly(t, "disturbed", p.run(20*probeEvery, disturbed))
}

// If a coarse clock measures no time at all, the cost counts as low, and not as unknown.
func TestChooserOfACoarseClock(t *testing.T) {
	var p storeChooser
	p.run(warmupCalls, costs(0, 0))
	if p.cost[cached] <= 0 || p.cost[nonTemporal] <= 0 {
		t.Errorf("costs %v, want more than none", p.cost)
	}
}
