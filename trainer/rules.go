package trainer

import (
	"fmt"

	"github.com/elrun/elrun/trainer/optim"
)

// rules say how the commit of a step changes the parameters.
type rules struct {
	optimizer optim.Optimizer
	schedule  optim.Schedule
	delay     bool // the mean gradient of a step is applied by the commit of the one after it
}

// rule is that of an optimizer for one step.
type rule func(param, mean []float32, state [][]float32)

// of returns the rule for the mean gradient of a step; one that does nothing for step 0.
func (r rules) of(step int64) (rule, error) {
	if step == 0 {
		return func(_, _ []float32, _ [][]float32) {}, nil
	}
	rate := r.schedule(step)
	if !finite(rate) {
		return nil, fmt.Errorf("learning rate %v: %w", rate, ErrNotFinite)
	}
	return func(param, mean []float32, memory [][]float32) {
		r.optimizer.Update(step, rate, param, mean, memory)
	}, nil
}

// due returns the mean gradient that the commit of a step applies, and its rule: those of the step,
// or with a delay of the one before.
func (r rules) due(step int64, grads *gradients) (apply rule, mean [][]float32, err error) {
	mean = grads.staging.views
	if r.delay {
		step, mean = step-1, grads.applied.views
	}
	apply, err = r.of(step)
	return apply, mean, err
}
