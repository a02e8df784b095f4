package trainer

import (
	"fmt"

	"github.com/elrun/elrun/trainer/optim"
)

// rules define how the commit of a step changes the parameters.
type rules struct {
	optimizer optim.Optimizer // computes new parameters from a mean gradient
	schedule  optim.Schedule  // returns the learning rate of a step
	delay     bool            // apply a mean gradient at the commit of the next step
}

// rule updates a part of a parameter for one step; state has the same part of the optimizer's
// vectors.
type rule func(param, mean []float32, state [][]float32)

// of returns the rule for the mean gradient of a step. The rule of step 0 does nothing: with a
// delay, the commit of step 1 has no earlier gradient.
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

// due returns the mean gradient that the commit of a step applies, and its rule: the gradient of the
// step itself, or with Gradients.Delay the gradient of the previous step. The learning rate belongs
// to the step of the gradient.
func (r rules) due(step int64, grads *gradientBuffers) (apply rule, mean [][]float32, err error) {
	mean = grads.staging.views
	if r.delay {
		step, mean = step-1, grads.applied.views
	}
	apply, err = r.of(step)
	return apply, mean, err
}
