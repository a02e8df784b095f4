package shm

import (
	"testing"
	"time"
)

// run makes so many calls, which take what cost says for the way, and returns how many took each.
func (p *pace) run(calls int, cost func(call int, w way) time.Duration) (of [ways]int) {
	for k := range calls {
		w := p.next()
		p.took(w, 1000, cost(k, w))
		of[w]++
	}
	return of
}

// costs are those of both ways.
func costs(claim, pass time.Duration) func(int, way) time.Duration {
	return func(_ int, w way) time.Duration { return [ways]time.Duration{claim, pass}[w] }
}

// mostly fails where the way was not that of nearly all calls.
func (w way) mostly(t *testing.T, what string, of [ways]int) {
	t.Helper()
	if calls := of[0] + of[1]; of[w] < calls-calls/16 || of[w] == calls {
		t.Errorf("%s: way %d in %d of %d calls, want it in most and not in all", what, w, of[w], calls)
	}
}

// The shorter way is found, also where it was the longer one before, and the other is tried now
// and then.
func TestPaceFollows(t *testing.T) {
	var p pace
	if of := p.run(trials, costs(20, 30)); of[claiming] != trials/2 || of[passing] != trials/2 {
		t.Errorf("at first: %v calls by the ways, want %d each", of, trials/2)
	}
	for _, step := range []struct {
		what        string
		claim, pass time.Duration
		want        way
	}{
		{"cores are near", 20, 30, claiming},
		{"cores are far", 50, 35, passing},
		{"cores are near again", 20, 30, claiming},
		{"past the caches is faster than ever", 20, 15, passing},
	} {
		p.run(3*tryEvery, costs(step.claim, step.pass))
		step.want.mostly(t, step.what, p.run(10*tryEvery, costs(step.claim, step.pass)))
	}
}

// Calls in which the processor did something else, for much longer than a call takes, do not
// mislead, nor does the first call.
func TestPaceIgnoresInterruptions(t *testing.T) {
	var p pace
	disturbed := func(k int, w way) time.Duration {
		if k == 0 || k%7 == 5 {
			return 5000
		}
		return costs(20, 30)(k, w)
	}
	claiming.mostly(t, "disturbed", p.run(20*tryEvery, disturbed))
}

// No time at all, from a coarse clock, is a short one and not none.
func TestPaceOfACoarseClock(t *testing.T) {
	var p pace
	p.run(trials, costs(0, 0))
	if p.cost[claiming] <= 0 || p.cost[passing] <= 0 {
		t.Errorf("costs %v, want more than none", p.cost)
	}
}
