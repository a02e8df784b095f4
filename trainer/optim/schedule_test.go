package optim_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/elrun/elrun/trainer/optim"
	"pgregory.net/rapid"
)

func TestSchedulesAtKnownSteps(t *testing.T) {
	tests := map[string]struct {
		schedule optim.Schedule
		want     map[int64]float64
	}{
		"constant": {optim.Constant(0.3), map[int64]float64{1: 0.3, 1000: 0.3}},
		"steps":    {optim.Steps(1, 0.1, 10), map[int64]float64{1: 1, 10: 1, 11: 0.1, 20: 0.1, 21: 0.01}},
		"cosine":   {optim.Cosine(1, 0.2, 101), map[int64]float64{1: 1, 51: 0.6, 101: 0.2, 500: 0.2, 26: 0.6 + 0.4*math.Sqrt2/2}},
		"one step": {optim.Cosine(1, 0.2, 1), map[int64]float64{1: 0.2, 2: 0.2}},
		"warm-up":  {optim.Warmup(4, optim.Steps(1, 0.5, 2)), map[int64]float64{1: 0.2, 4: 0.8, 5: 1, 6: 1, 7: 0.5}},
		"no warm":  {optim.Warmup(0, optim.Constant(2)), map[int64]float64{1: 2}},
	}
	for name, tt := range tests {
		for step, want := range tt.want {
			if got := tt.schedule(step); math.Abs(got-want) > 1e-12 {
				t.Errorf("%s at step %d is %v, want %v", name, step, got, want)
			}
		}
	}
}

func TestCosineFallsWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		last := rapid.Int64Range(1, 300).Draw(t, "last")
		s := optim.Cosine(1, 0.1, last)
		for step := int64(1); step <= last+2; step++ {
			if v, next := s(step), s(step+1); v < next || v > 1 || v < 0.1 {
				t.Fatalf("step %d: %v, then %v; want a fall from 1 to 0.1", step, v, next)
			}
		}
	})
}

func TestStepsPanicsWithoutAnInterval(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	optim.Steps(1, 0.5, 0)
}

func ExampleWarmup() {
	rate := optim.Warmup(4, optim.Constant(1))
	for step := int64(1); step <= 6; step++ {
		fmt.Printf("%.1f ", rate(step))
	}
	// Output: 0.2 0.4 0.6 0.8 1.0 1.0
}
