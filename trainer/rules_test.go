package trainer

import (
	"errors"
	"math"
	"testing"

	"github.com/elrun/elrun/trainer/optim"
)

// A commit applies the mean gradient of its step at the learning rate of its step. With a delay it applies the mean and rate of
// the previous step, and nothing in the first step.
func TestWhatACommitApplies(t *testing.T) {
	schedule := func(step int64) float64 { return float64(step) }
	grads := &gradientBuffers{staging: vector{views: [][]float32{{10}}}, applied: vector{views: [][]float32{{1}}}}
	for _, c := range []struct {
		delay bool
		step  int64
		want  float32
	}{{false, 1, -10}, {false, 3, -30}, {true, 1, 0}, {true, 3, -2}} {
		apply, mean, err := rules{optim.SGD{}, schedule, c.delay, plan{}}.toApply(c.step, grads)
		if err != nil {
			t.Fatal(err)
		}
		param := []float32{0}
		if apply(param, mean[0], nil); param[0] != c.want {
			t.Errorf("delay %t, step %d: the parameter becomes %v, want %v", c.delay, c.step, param[0], c.want)
		}
	}
	for delay, step := range map[bool]int64{false: 1, true: 2} {
		r := rules{optim.SGD{}, optim.Constant(math.Inf(1)), delay, plan{}}
		if _, _, err := r.toApply(step, grads); !errors.Is(err, ErrNotFinite) {
			t.Errorf("delay %t: error %v of an infinite rate", delay, err)
		}
	}
	if _, _, err := (rules{optim.SGD{}, optim.Constant(math.NaN()), true, plan{}}).toApply(1, grads); err != nil {
		t.Errorf("error %v where nothing is applied", err)
	}
}
