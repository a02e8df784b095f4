package trainer

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/elrun/elrun/loadbal"
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
		var e noise
		total := 0.0
		const rounds = 4000
		// sum returns an element of the sum of the gradients of n samples.
		sum := func(n int) float64 {
			return float64(n)*each + math.Sqrt(float64(n))*sigma*random.NormFloat64()
		}
		for range rounds {
			reports, all := make([]rankReport, len(c.shares)), make([]float64, dim)
			for r, b := range c.shares {
				reports[r].samples, reports[r].group = int64(b), int64(c.groups[r])
				for i := range dim {
					first := sum(c.groups[r])
					reports[r].groupNorm += first * first
					all[i] += (first + sum(b-c.groups[r])) / 200
				}
			}
			mean := 0.0
			for _, x := range all {
				mean += x * x
			}
			e.observe(reports, mean)
			total += e.trace / rounds
		}
		if trace := dim * sigma * sigma; math.Abs(total-trace) > 0.05*trace {
			t.Errorf("%v: trace %v, want %v", c, total, trace)
		}
		if got := e.scale(); got < want/1.5 || got > want*1.5 {
			t.Errorf("%v: noise scale %v, want about %v", c, got, want)
		}
	}
}

// Steps that contain no information about noise do not change the estimate. Noise in which the gradient is lost is reported as a
// hundred batches.
func TestNoiseOfNothing(t *testing.T) {
	var e noise
	whole := rankReport{samples: 4, group: 4, groupNorm: 9}
	for _, reports := range [][]rankReport{nil, {whole}, {whole, {}}, {{samples: 4, group: 4, groupNorm: math.NaN()}, whole}} {
		if e.observe(reports, 1); e != (noise{}) || e.scale() != 0 {
			t.Errorf("%+v gives %+v", reports, e)
		}
	}
	for _, signal := range []float64{-1, 0, 1e-9} {
		e = noise{trace: 3, signal: signal, batch: 20}
		if got := e.scale(); math.Abs(got-2000) > 1e-6 {
			t.Errorf("a square of %v has the scale %v", signal, got)
		}
	}
}

// If a peer had computed a part of its share before, the share does not measure the peer's speed.
func TestMeasuredShares(t *testing.T) {
	var b balance
	if b.measured(3, 3, true, 30*time.Millisecond); b.micros != 30_000 || b.speed() != 100*loadbal.SpeedUnit {
		t.Errorf("%d us, speed %d", b.micros, b.speed())
	}
	if b.measured(0, 2, true, 0); b.micros != 0 {
		t.Errorf("%d us for an empty share", b.micros)
	}
	if b.measured(3, 3, false, time.Second); b.micros != 0 || b.speed() != 100*loadbal.SpeedUnit {
		t.Errorf("%d us with a microbatch held, speed %d", b.micros, b.speed())
	}
	// A peer that has computed three microbatches of its six, because others have stolen the rest, would need twice the time for them.
	if b.measured(6, 3, true, 30*time.Millisecond); b.micros != 60_000 || b.speed() != 100*loadbal.SpeedUnit {
		t.Errorf("%d us after a theft, speed %d", b.micros, b.speed())
	}
	// One slow step in five does not change the speed.
	for _, d := range []time.Duration{30, 30, 900, 30, 31, 29} {
		b.measured(3, 3, true, d*time.Millisecond)
	}
	if got := b.speed(); got != 100*loadbal.SpeedUnit || len(b.speeds) != speedWindow {
		t.Errorf("speed %d of the last %d steps", got, len(b.speeds))
	}
}
