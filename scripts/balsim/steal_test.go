package balsim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/elrun/elrun/loadbal"
	"github.com/elrun/elrun/scripts/balsim"
)

// even returns the run of a trace with equal shares.
func even(t testing.TB, trace *balsim.Trace) *balsim.Run { return simulate(t, trace, "equal") }

// A step with stealing takes at least as long as if microbatches could be divided, and hardly longer than
// without stealing: a peer that thieves believe to be slow may become fast.
func TestStealingIsWithinBounds(t *testing.T) {
	for _, trace := range append(balsim.All(8, 120), recorded(t, "short-steps.txt"), recorded(t, "long-steps.txt")) {
		trace.Noise, trace.Tau = 0, nil
		run := even(t, trace)
		with := balsim.Stealing(trace, run)
		for s, took := range with.Took {
			speed, fixed := 0.0, int64(1<<62)
			for p, pace := range trace.Pace[s] {
				speed += 1 / float64(pace)
				if trace.Fixed == nil {
					fixed = 0
				} else {
					fixed = min(fixed, trace.Fixed[p])
				}
			}
			if least := float64(fixed) + float64(trace.Microbatches)/speed; float64(took) < least-1 {
				t.Errorf("%s, step %d: %d ns, and all peers together need %.0f", trace.Name, s, took, least)
			}
			if most := run.Took[s] + 2*slices.Max(trace.Pace[s]); took > most {
				t.Errorf("%s, step %d: %d ns, and %d without stealing", trace.Name, s, took, run.Took[s])
			}
		}
	}
}

// Where nobody is late nothing is stolen, and the steps take as long as without stealing.
func TestNothingToSteal(t *testing.T) {
	for _, noise := range []int64{0, 10} {
		trace := balsim.Homogeneous(16, 100)
		trace.Noise = noise
		run := even(t, trace)
		with := balsim.Stealing(trace, run)
		if noise == 0 && !slices.Equal(with.Took, run.Took) || with.Moved() > 5 {
			t.Errorf("noise %d: %d thousandths were stolen; times %v, and %v without", noise, with.Moved(), with.Took[:3], run.Took[:3])
		}
	}
}

// Peers at random speeds in each step, which no policy can know, end nearly together.
func TestStealingFromRandomPeers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	trace := balsim.Homogeneous(4, 200)
	trace.Noise = 0
	for _, row := range trace.Pace {
		row[random.IntN(4)] *= 5
	}
	run := even(t, trace)
	if e := run.Efficiency(); e > 300 {
		t.Errorf("%d thousandths of foresight without stealing", e)
	}
	if e := balsim.Stealing(trace, run).Efficiency(); e < 880 {
		t.Errorf("%d thousandths of foresight with stealing", e)
	}
}

// Codes are compared with a direct computation, and with a code that waits for all peers but one.
func TestCoded(t *testing.T) {
	for _, trace := range balsim.All(8, 60) {
		trace.Noise, trace.Tau = 0, nil
		run := even(t, trace)
		coded, best := balsim.Coded(trace, run, false), balsim.Coded(trace, run, true)
		for s := range coded.Took {
			var all []int64
			want := int64(0)
			for p, pace := range trace.Pace[s] {
				took := pace * int64(2*trace.Microbatches/8)
				if trace.Fixed != nil {
					took += trace.Fixed[p]
				}
				if all = append(all, took); p%2 == 1 {
					want = max(want, min(all[p-1], all[p]))
				}
			}
			slices.Sort(all)
			if coded.Took[s] != want || want > all[6] || best.Took[s] > want {
				t.Fatalf("%s, step %d: %d, by hand %d, for all but one %d, with foresight %d", trace.Name, s, coded.Took[s], want, all[6], best.Took[s])
			}
		}
	}
}

// This is why codes are not built: stealing is faster on each trace, even than codes with foresight.
func TestStealingBeatsCodes(t *testing.T) {
	for _, trace := range append(balsim.All(64, 200), recorded(t, "short-steps.txt"), recorded(t, "long-steps.txt")) {
		run := simulate(t, trace, "")
		steal, code := balsim.Stealing(trace, run).Efficiency(), balsim.Coded(trace, run, true).Efficiency()
		if steal <= code {
			t.Errorf("%s: %d with stealing, %d with a code", trace.Name, steal, code)
		}
	}
}

func ExampleStealing() {
	policy, err := loadbal.New("equal")
	if err != nil {
		panic(err)
	}
	trace := balsim.Step(4, 100, 10, 90) // from step 10 on the last peer is 4 times slower
	trace.Noise = 0
	run := balsim.Simulate(trace, policy)
	with := balsim.Stealing(trace, run)
	fmt.Println(run.Took[20]/1_000_000, with.Took[20]/1_000_000, with.Stolen[20])
	// Output: 128 40 26
}
