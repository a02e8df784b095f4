package balsim_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/loadbal"
	"github.com/elrun/elrun/scripts/balsim"
)

// simulate runs the policy of the given name.
func simulate(t testing.TB, trace *balsim.Trace, name string) *balsim.Run {
	t.Helper()
	p, err := loadbal.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return balsim.Simulate(trace, p)
}

// four returns the trace of four peers as --slow creates them: 512 microbatches of 0.8 ms,
// without noise.
func four(trace *balsim.Trace) *balsim.Trace {
	trace.Microbatches, trace.Noise = 512, 0
	return trace
}

// With speeds 1:1:1:1/4 the group reaches at least 97 % of the sum of its peers' speeds within a
// few steps. It cannot reach 100 %, because shares are whole numbers.
func TestThroughputOfUnequalPeers(t *testing.T) {
	for _, noise := range []int64{0, 5} {
		trace := four(balsim.Step(4, 200, 0, 200))
		trace.Noise = noise
		run := simulate(t, trace, "")
		var took int64
		for _, s := range run.Took[5:] {
			took += s
		}
		// Together they compute 3.25 microbatches in the time that a fast peer needs for one.
		ideal := int64(len(run.Took)-5) * 512 * trace.Pace[0][0] * 100 / 325
		if ideal*100 < took*97 {
			t.Errorf("noise %d: %d %% of the sum of speeds", noise, ideal*100/took)
		}
	}
}

// A peer is four times slower for 70 steps. From 5 steps after it becomes slow, and from 10 steps
// after it recovers, the spread of the times is within 5 points of the spread with the best shares.
func TestStepChange(t *testing.T) {
	for _, noise := range []int64{0, 5} {
		trace := four(balsim.Step(4, 200, 50, 120))
		trace.Noise = noise
		run := simulate(t, trace, "")
		trace.Noise = 0
		for s := range run.Shares {
			if s < 55 || s >= 120 && s < 130 {
				continue
			}
			// The noise-free times of these shares at the true speeds.
			got, best := trueTimes(trace, s, run.Shares[s]), trueTimes(trace, s, trace.Foresight(s))
			if e := trace.Excess(s, run.Shares[s]); e != balsim.Spread(got)-balsim.Spread(best) {
				t.Fatalf("Excess of %v is %d, and times %v are instead of %v", run.Shares[s], e, got, best)
			}
			if spread, want := balsim.Spread(got), balsim.Spread(best)+50; spread > want {
				t.Errorf("noise %d, step %d: %v with a spread of %d, want %d", noise, s, run.Shares[s], spread, want)
			}
		}
	}
}

// trueTimes returns the noise-free times of shares, without fixed costs.
func trueTimes(trace *balsim.Trace, step int, shares []int) []int64 {
	times := make([]int64, len(shares))
	for p, b := range shares {
		times[p] = int64(b) * trace.Pace[step][p]
	}
	return times
}

// If most of the time is fixed, shares reach good values within 5 steps and then change at most
// three times.
func TestFixedCostDominates(t *testing.T) {
	for _, noise := range []int64{0, 5, 10} {
		for _, fixed := range [][]int64{{100e6, 100e6, 100e6, 200e6}, {100e6, 120e6, 140e6, 110e6}, {300e6, 300e6, 300e6, 300e6}} {
			trace := four(balsim.Homogeneous(4, 200))
			trace.Microbatches, trace.Fixed, trace.Noise = 128, fixed, noise
			run := simulate(t, trace, "")
			if n := run.Changes(6); noise == 0 && n > 0 || n > 3 {
				t.Errorf("noise %d, fixed %v: shares changed %d times after 5 steps: %v", noise, fixed, n, slices.CompactFunc(run.Shares, slices.Equal))
			}
			if e := run.Efficiency(); e < 970 {
				t.Errorf("noise %d, fixed %v: efficiency %d, at last %v instead of %v", noise, fixed, e, run.Shares[199], trace.Foresight(199))
			}
		}
	}
}

// 64 peers with constantly changing speeds reach at least 93 % of the speed with foresight.
func TestNearForesight(t *testing.T) {
	for _, trace := range []*balsim.Trace{balsim.Periodic(64, 500), balsim.Walk(64, 500)} {
		for _, noise := range []int64{0, trace.Noise} {
			trace.Noise = noise
			if e := simulate(t, trace, "").Efficiency(); e < 930 {
				t.Errorf("%s, noise %d: %d", trace.Name, noise, e)
			}
		}
	}
}

// The default policy has the best mean of all policies, and the best mean of its variants.
func TestDefaultWins(t *testing.T) {
	sum := func(name string) (sum int64) {
		for _, trace := range balsim.All(32, 300) {
			sum += simulate(t, trace, name).Efficiency()
		}
		return sum
	}
	best := sum("")
	for _, name := range slices.Concat(loadbal.Names(), loadbal.Variants()) {
		if s := sum(name); s > best {
			t.Errorf("%s reaches %d, the default %d", name, s, best)
		}
	}
}

// Without noise foresight is never worse than a policy.
func TestNobodyBeatsForesight(t *testing.T) {
	for _, trace := range balsim.All(8, 120) {
		trace.Noise = 0
		for _, name := range loadbal.Names() {
			run := simulate(t, trace, name)
			for s := range run.Took {
				if run.Took[s] < run.Best[s] {
					t.Fatalf("%s, %s, step %d: %d, and foresight took %d", trace.Name, name, s, run.Took[s], run.Best[s])
				}
			}
		}
	}
}

func TestTracesAreWhole(t *testing.T) {
	for _, trace := range balsim.All(12, 90) {
		if trace.Peers() != 12 || len(trace.Pace) != 90 || trace.Name == "" || trace.About == "" {
			t.Errorf("%s: %d peers, %d steps", trace.Name, trace.Peers(), len(trace.Pace))
		}
		for s, row := range trace.Pace {
			if slices.Min(row) < 1_000_000 || slices.Max(row) > 9_000_000 {
				t.Fatalf("%s, step %d: paces %v", trace.Name, s, row)
			}
		}
	}
}

func TestRecorded(t *testing.T) {
	for _, name := range []string{"short-steps.txt", "long-steps.txt"} {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		trace, err := balsim.Recorded(name, "", bytes.NewReader(text))
		if err != nil || trace.Peers() != 4 || len(trace.Pace) != bytes.Count(text, []byte("\n")) {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{"", "\n", "1 2\n3\n", "1 0\n", "1 x\n", "1 9999999999\n", strings.Repeat("1 ", 2000)} {
		if _, err := balsim.Recorded("bad", "", strings.NewReader(bad)); err == nil {
			t.Errorf("%.20q was taken for a trace", bad)
		}
	}
}

func FuzzRecorded(f *testing.F) {
	for _, s := range []string{"", "32 64\n1 2\n", "5\n5\n", "1 2\n3\n", "-1\n", "1000000000 1\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		trace, err := balsim.Recorded("fuzz", "", strings.NewReader(s))
		if err != nil || trace.Peers() > 16 || len(trace.Pace) > 50 {
			return
		}
		// Every trace that can be read can be simulated.
		if run := simulate(t, trace, ""); len(run.Took) != len(trace.Pace) {
			t.Fatalf("%d steps of %d", len(run.Took), len(trace.Pace))
		}
	})
}

func ExampleSimulate() {
	policy, err := loadbal.New("lbbsp-cpu")
	if err != nil {
		panic(err)
	}
	trace := balsim.Step(4, 100, 10, 90)
	trace.Noise = 0
	run := balsim.Simulate(trace, policy)
	fmt.Println(run.Shares[9], run.Shares[11])
	// Output: [32 32 32 32] [40 40 39 9]
}
