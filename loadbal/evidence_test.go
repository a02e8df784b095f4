package loadbal_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/elrun/elrun/loadbal"
)

// disturbances returns relative errors of a rank's time, by name: normal ones with the given
// standard deviation in percent, and delays of up to the time itself.
func disturbances() map[string]func(*rand.Rand) float64 {
	all := map[string]func(*rand.Rand) float64{"delays": (*rand.Rand).Float64}
	for _, percent := range []float64{0, 2, 5, 10, 20, 30} {
		all[fmt.Sprintf("%.0f%%", percent)] = func(rnd *rand.Rand) float64 { return percent / 100 * rnd.NormFloat64() }
	}
	return all
}

// disturbed returns reports of shares, with the time of each rank in microseconds disturbed.
func disturbed(rnd *rand.Rand, shares []int, micros func(rank, share int) float64, disturbance func(*rand.Rand) float64) []loadbal.Report {
	reports := make([]loadbal.Report, len(shares))
	for r, b := range shares {
		reports[r] = loadbal.Report{Share: b, Micros: max(1, int64(micros(r, b)*max(.1, 1+disturbance(rnd))))}
	}
	return reports
}

// unequal returns the part of the steps in which a rank has less than three quarters of an equal
// share. Two policies with the same reports agree in each step.
func unequal(t *testing.T, ranks int, micros func(rank, share int) float64, disturbance func(*rand.Rand) float64) float64 {
	const steps, seeds, equal = 1000, 3, 1024
	few := 0
	for seed := range uint64(seeds) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		p, twin := policy(t, ""), policy(t, "")
		p.Begin(make([]int64, ranks))
		twin.Begin(make([]int64, ranks))
		shares, _ := p.Next(nil, equal*ranks)
		twin.Next(nil, equal*ranks)
		for step := range steps {
			reports := disturbed(rnd, shares, micros, disturbance)
			shares, _ = p.Next(reports, equal*ranks)
			if again, _ := twin.Next(reports, equal*ranks); !slices.Equal(shares, again) {
				t.Fatalf("step %d: two equal policies: %v and %v", step, shares, again)
			}
			if slices.Min(shares) < equal*3/4 {
				few++
			}
		}
	}
	return float64(few) / (steps * seeds)
}

// If the times do not depend on the shares, the shares stay near equal ones, whatever the noise, and
// even if some ranks take twice as long as the others. Without tests of the shares they are far from
// equal ones nearly always.
func TestSharesStayNearEqualWithoutEvidence(t *testing.T) {
	for kind, disturbance := range disturbances() {
		for _, ranks := range []int{2, 4, 16} {
			for times := range 2 {
				micros := func(rank, _ int) float64 { return 50_000 * float64(1+rank%2*times) }
				if got := unequal(t, ranks, micros, disturbance); got > .06 {
					t.Errorf("noise %s, %d ranks, times of 1 and %d: in %.0f %% of the steps a rank had less than three quarters of an equal share",
						kind, ranks, 1+times, 100*got)
				}
			}
		}
	}
}

// Tests of the shares cost little if the times do follow them: ranks of unequal speeds are nearly as
// fast as with the best shares.
func TestSharesFollowSpeedsInNoise(t *testing.T) {
	const ranks, microbatches = 4, 1024
	for _, noise := range []float64{0, .02, .05, .1} {
		for _, ratio := range []int64{2, 4} {
			costs := make([]loadbal.Cost, ranks)
			for r := range costs {
				costs[r] = loadbal.Cost{Each: 100 + 100*(ratio-1)*int64(r%2), Min: 1}
			}
			best := loadbal.Slowest(costs, loadbal.Optimum(costs, microbatches))
			took, steps := int64(0), int64(0)
			for seed := range uint64(10) {
				p, rnd := policy(t, ""), rand.New(rand.NewPCG(seed, 2))
				p.Begin(make([]int64, ranks))
				shares, _ := p.Next(nil, microbatches)
				for range 400 {
					took, steps = took+loadbal.Slowest(costs, shares), steps+1
					shares, _ = p.Next(disturbed(rnd, shares, func(rank, share int) float64 { return float64(costs[rank].Time(share)) },
						func(rnd *rand.Rand) float64 { return noise * rnd.NormFloat64() }), microbatches)
				}
			}
			if float64(took) > float64(best*steps)*(1.02+noise/2) {
				t.Errorf("noise %v, speeds 1 and 1/%d: a mean step of %d us, with the best shares %d", noise, ratio, took/steps, best)
			}
		}
	}
}

// A lasting difference of speeds is followed, also after a test has failed: soon the slow rank has
// its share. A pause of a rank before makes the shares far from equal, and a test returns them.
func TestSharesFollowAfterAFailedTest(t *testing.T) {
	const ranks, microbatches = 4, 512
	p, rnd := policy(t, ""), rand.New(rand.NewPCG(3, 4))
	p.Begin(make([]int64, ranks))
	shares, _ := p.Next(nil, microbatches)
	noise := func(rnd *rand.Rand) float64 { return .02 * rnd.Float64() }
	for step := range 700 { // the time does not depend on the share
		shares, _ = p.Next(disturbed(rnd, shares, func(rank, _ int) float64 {
			if step == 100 && rank == 1 {
				return 1_000_000
			}
			return 50_000
		}, noise), microbatches)
		if step == 110 && shares[1] > 20 {
			t.Errorf("after a pause %v: the test has nothing to do", shares)
		}
	}
	if slices.Min(shares) < 128*3/4 {
		t.Errorf("shares %v of ranks with equal times", shares)
	}
	for range 20 { // the time follows the share, and a rank is four times slower
		shares, _ = p.Next(disturbed(rnd, shares, func(rank, share int) float64 {
			if rank == 2 {
				share *= 4
			}
			return 400 * float64(share)
		}, noise), microbatches)
	}
	if shares[2] > 50 {
		t.Errorf("shares %v of a rank that is four times slower", shares)
	}
}
