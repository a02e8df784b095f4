package balsim_test

import (
	"os"
	"slices"
	"testing"

	"github.com/elrun/elrun/scripts/balsim"
)

// Shares of equal peers stay equal, despite noise in the times.
func TestHomogeneousPeersDoNotWander(t *testing.T) {
	for _, peers := range []int{2, 4, 16, 64} {
		for _, noise := range []int64{0, 10, 20, 40, 100} {
			for seed := range 2 {
				trace := balsim.Homogeneous(peers, 300)
				trace.Noise, trace.Seed = noise, seed
				run := simulate(t, trace, "")
				// After a wrong change a few more changes correct the shares.
				most, least := 4, int64(990)
				if noise > 40 {
					most, least = 12, 960
				}
				if changes, e := run.Changes(1), run.Efficiency(); changes > most || e < least {
					t.Errorf("%d peers, noise %d, seed %d: %d changes, efficiency %d", peers, noise, seed, changes, e)
				}
			}
		}
	}
}

// The policy follows a step change within two steps, even after noisy steps.
func TestStepChangeInNoise(t *testing.T) {
	const change = 100
	for _, peers := range []int{4, 16, 64} {
		for _, noise := range []int64{0, 5, 20, 50, 100} {
			for seed := range 2 {
				trace := balsim.Step(peers, 140, change, 140)
				trace.Noise, trace.Seed = noise, seed
				run := simulate(t, trace, "")
				before, after := run.Shares[change], run.Shares[change+2]
				for p := 3; p < peers; p += 4 {
					if after[p]*2 > before[p] {
						t.Errorf("%d peers, noise %d, seed %d: peer %d has %d of %d two steps after it got 4 times slower", peers, noise, seed, p, after[p], before[p])
					}
				}
			}
		}
	}
}

// The policy follows a step change even if all earlier steps have much noise: wrong initial
// forecasts do not keep a peer's share for ever.
func TestStepChangeAfterNoiseOnly(t *testing.T) {
	const change, end = 20, 45
	for _, noise := range []int64{50, 100, 200, 300} {
		for seed := range 300 {
			trace := balsim.Step(4, end, change, end)
			trace.Noise, trace.Seed = noise, seed
			slow, all := 0, 0
			for _, shares := range simulate(t, trace, "").Shares[change+2:] {
				slow += shares[3]
				all += trace.Microbatches
			}
			if slow*4 >= all {
				t.Errorf("noise %d, seed %d: a peer that got 4 times slower had %d of %d after that", noise, seed, slow, all)
			}
		}
	}
}

// With dominant fixed costs, the spread of the times is near the spread with the best shares within
// 5 steps and stays near it. Later changes are rare and do not oscillate.
func TestFixedCostsSettle(t *testing.T) {
	for _, noise := range []int64{0, 2, 5} {
		for seed := range 4 {
			trace := balsim.FixedCost(4, 200)
			trace.Noise, trace.Seed = noise, seed
			run := simulate(t, trace, "")
			for s, shares := range run.Shares[5:] {
				if e := trace.Excess(s+5, shares); e > 50 {
					t.Fatalf("noise %d, seed %d, step %d: %v with a spread that is %d above the best", noise, seed, s+5, shares, e)
				}
			}
			if n := run.Changes(6); n > 1 || noise == 0 && n > 0 {
				t.Errorf("noise %d, seed %d: %d changes after 5 steps", noise, seed, n)
			}
		}
	}
}

// One step in twenty is an outlier: it takes five times as long, and does not predict the next
// step. Equal peers reach at least 95 % of the speed with equal shares, and rarely has a peer less
// than a quarter of an equal share.
func TestOutliersAreTolerated(t *testing.T) {
	for _, noise := range []int64{5, 20, 100} {
		for seed := range 5 {
			trace := outliers(balsim.Homogeneous(4, 400), seed)
			trace.Noise, trace.Seed = noise, seed
			run, equal := simulate(t, trace, ""), simulate(t, trace, "equal")
			got, want := run.Efficiency(), equal.Efficiency()
			if got*100 < want*95 {
				t.Errorf("noise %d, seed %d: %d, with equal shares %d", noise, seed, got, want)
			}
			low := 0
			for _, shares := range run.Shares[100:] {
				if slices.Min(shares)*4 < 32 {
					low++
				}
			}
			if low > 15 {
				t.Errorf("noise %d, seed %d: in %d steps somebody had less than a quarter", noise, seed, low)
			}
		}
	}
}

// outliers makes single steps of single peers five times as long.
func outliers(trace *balsim.Trace, seed int) *balsim.Trace {
	h := uint64(seed)*2 + 1
	for _, row := range trace.Pace {
		for p := range row {
			if h = h*6364136223846793005 + 1442695040888963407; h>>33%20 == 0 {
				row[p] *= 5
			}
		}
	}
	return trace
}

// On an oversubscribed machine, where past times predict nothing, the default policy is not much
// worse than equal shares.
func TestRecordedChaos(t *testing.T) {
	for _, name := range []string{"short-steps.txt", "long-steps.txt"} {
		trace := recorded(t, name)
		got, equal := simulate(t, trace, "").Efficiency(), simulate(t, trace, "equal").Efficiency()
		if got*100 < equal*90 {
			t.Errorf("%s: %d, with equal shares %d", name, got, equal)
		}
	}
}

// recorded reads a trace in testdata.
func recorded(t *testing.T, name string) *balsim.Trace {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	trace, err := balsim.Recorded(name, "", f)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}
