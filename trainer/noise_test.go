package trainer

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/elrun/elrun/loadbal"
)

// The estimate approaches the true value, for equal and unequal shares. The gradient of a sample is the true gradient plus
// independent noise.
func TestNoiseScaleOfKnownNoise(t *testing.T) {
	const dim, sigma, each = 50, 3.0, 0.2 // trace dim*sigma^2, norm dim*each^2
	want := sigma * sigma / (each * each)
	for _, shares := range [][]int{{100, 100}, {10, 190}, {60, 20, 100, 20}, {0, 120, 80}} {
		random := rand.New(rand.NewPCG(1, uint64(len(shares))))
		var e noise
		total := 0.0
		const rounds = 4000
		for range rounds {
			reports, all := make([]rankReport, len(shares)), make([]float64, dim)
			for r, b := range shares {
				reports[r].samples = int64(b)
				for i := range dim {
					sum := float64(b)*each + math.Sqrt(float64(b))*sigma*random.NormFloat64()
					reports[r].squareNorm += sum * sum
					all[i] += sum / 200
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
			t.Errorf("shares %v: trace %v, want %v", shares, total, trace)
		}
		if got := e.scale(); got < want/1.5 || got > want*1.5 {
			t.Errorf("shares %v: noise scale %v, want about %v", shares, got, want)
		}
	}
}

// Steps that contain no information about noise do not change the estimate.
func TestNoiseOfNothing(t *testing.T) {
	var e noise
	for _, reports := range [][]rankReport{nil, {{samples: 4, squareNorm: 9}}, {{samples: 4, squareNorm: 9}, {}}, {{samples: 4, squareNorm: math.NaN()}, {samples: 4}}} {
		if e.observe(reports, 1); e != (noise{}) || e.scale() != 0 {
			t.Errorf("%+v gives %+v", reports, e)
		}
	}
	e = noise{trace: 3, signal: -1}
	if e.scale() != 0 {
		t.Errorf("a negative square has the scale %v", e.scale())
	}
}

// If a peer had computed a part of its share before, the share does not measure the peer's speed.
func TestMeasuredShares(t *testing.T) {
	var b balance
	if b.measured(3, true, 30*time.Millisecond); b.micros != 30_000 || b.speed() != 100*loadbal.SpeedUnit {
		t.Errorf("%d us, speed %d", b.micros, b.speed())
	}
	if b.measured(0, true, 0); b.micros != 0 {
		t.Errorf("%d us for an empty share", b.micros)
	}
	if b.measured(3, false, time.Second); b.micros != 0 || b.speed() != 100*loadbal.SpeedUnit {
		t.Errorf("%d us with a microbatch held, speed %d", b.micros, b.speed())
	}
	// One slow step in five does not change the speed.
	for _, d := range []time.Duration{30, 30, 900, 30, 31, 29} {
		b.measured(3, true, d*time.Millisecond)
	}
	if got := b.speed(); got != 100*loadbal.SpeedUnit || len(b.speeds) != speedWindow {
		t.Errorf("speed %d of the last %d steps", got, len(b.speeds))
	}
}
