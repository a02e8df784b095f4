package growth

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The estimate approaches the true value, for equal and unequal groups, also of one rank. The gradient of a sample is the true
// gradient plus independent noise.
func TestNoiseScaleOfKnownNoise(t *testing.T) {
	const dim, sigma, each = 50, 3.0, 0.2 // trace dim*sigma^2, norm dim*each^2
	want := sigma * sigma / (each * each)
	for _, c := range []struct{ shares, groups []int }{
		{[]int{100, 100}, []int{100, 100}}, {[]int{10, 190}, []int{10, 190}}, {[]int{60, 20, 100, 20}, []int{60, 20, 100, 20}},
		{[]int{0, 120, 80}, []int{0, 120, 80}}, {[]int{200}, []int{10}}, {[]int{120, 80}, []int{20, 80}}, {[]int{190, 10}, []int{30, 10}},
	} {
		random := rand.New(rand.NewPCG(1, uint64(len(c.shares))))
		e := NewNoise(dim, false)
		total := 0.0
		const rounds = 4000
		// sum returns an element of the sum of the gradients of n samples.
		sum := func(n int) float64 {
			return float64(n)*each + math.Sqrt(float64(n))*sigma*random.NormFloat64()
		}
		for range rounds {
			var groups Groups
			all := make([]float64, dim)
			for r, b := range c.shares {
				norm := 0.0
				for i := range dim {
					first := sum(c.groups[r])
					norm += first * first
					all[i] += (first + sum(b-c.groups[r])) / 200
				}
				groups.Add(int64(c.groups[r]), norm)
			}
			mean := 0.0
			for _, x := range all {
				mean += x * x
			}
			e.Observe(groups, 200, mean)
			total += e.Trace / rounds
		}
		if trace := dim * sigma * sigma; math.Abs(total-trace) > 0.05*trace {
			t.Errorf("%v: trace %v, want %v", c, total, trace)
		}
		if got := e.Scale(); got < want/1.5 || got > want*1.5 {
			t.Errorf("%v: noise scale %v, want about %v", c, got, want)
		}
	}
}

// Steps that contain no information about noise do not change the estimate. Noise in which the gradient is lost is reported as a
// hundred batches.
func TestNoiseOfNothing(t *testing.T) {
	e := NewNoise(1, true)
	for _, norms := range [][]float64{nil, {9}, {9, math.NaN()}, {9, math.Inf(1)}} {
		var groups Groups
		for _, norm := range norms {
			groups.Add(4, norm)
		}
		groups.Add(0, 5)
		if e.Observe(groups, float64(4*len(norms)), 1); e != NewNoise(1, true) || e.Scale() != 0 {
			t.Errorf("norms %v give %+v", norms, e)
		}
	}
	for _, signal := range []float64{-1, 0, 1e-9} {
		if got := (Averages{Trace: 3, Signal: signal, Batch: 20}).Scale(); math.Abs(got-2000) > 1e-6 {
			t.Errorf("a square of %v has the scale %v", signal, got)
		}
	}
}

// Norms of a large model are measured in some steps, and then at all peers.
func TestWhenNoiseIsMeasured(t *testing.T) {
	for _, c := range []struct {
		elements int
		every    int64
	}{{1, 1}, {noiseElements, 1}, {noiseElements + 1, 2}, {10 * noiseElements, 10}} {
		n := NewNoise(c.elements, false)
		for step := int64(1); step < 40; step++ {
			if n.Due(step) != (step%c.every == 0) {
				t.Errorf("%d elements: due in step %d: %t", c.elements, step, n.Due(step))
			}
		}
	}
	if none := (Noise{}); none.Measures() || none.Due(1) {
		t.Error("the zero value measures")
	}
}
