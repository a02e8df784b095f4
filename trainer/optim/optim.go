// Package optim has optimizers, learning-rate schedules and gradient clipping.
//
// All functions are pure: an optimizer keeps its state in vectors that the caller owns, and a
// schedule depends only on the step number. So peers that start with the same bits keep the same
// bits, and a checkpoint of parameters, state and step number is complete:
//
//	rule := optim.SGD{Momentum: 0.9, Nesterov: true}
//	rate := optim.Warmup(50, optim.Cosine(0.1, 0.001, 1000))
//	state := optim.NewState(rule, len(params))
//	for step := int64(1); step <= 1000; step++ {
//		optim.Clip([][]float32{grad}, 5)
//		rule.Update(step, rate(step), params, grad, state)
//	}
package optim

import (
	"fmt"
	"math"
)

// Optimizer updates parameters by their gradient. It updates each element in the same way and
// independently of the other elements. So a vector may be updated in parts, each with its part of
// the state.
type Optimizer interface {
	// Slots returns the number of state vectors, each as long as the parameters.
	Slots() int
	// Check returns an error for a setting outside its range.
	Check() error
	// Update makes one step. step is its number, from 1, and rate the learning rate. It changes
	// param and state, and only reads grad; all have the same length. state is zero before the
	// first step. It panics if lengths differ.
	Update(step int64, rate float64, param, grad []float32, state [][]float32)
}

// NewState returns zeroed state vectors of an optimizer for n parameters. The caller owns them.
func NewState(rule Optimizer, n int) [][]float32 {
	state := make([][]float32, rule.Slots())
	for i := range state {
		state[i] = make([]float32, n)
	}
	return state
}

// SGD is stochastic gradient descent, with momentum if Momentum is not zero (Nesterov's variant
// as in Sutskever, Martens, Dahl and Hinton 2013):
//
//	g = grad + WeightDecay * param
//	v = Momentum * v + g
//	param -= rate * v                     or, with Nesterov, rate * (g + Momentum * v)
//
// v is the state; without momentum there is no state.
type SGD struct {
	Momentum    float64
	Nesterov    bool
	WeightDecay float64 // L2 regularisation, added to the gradient
}

// Slots returns 1 with momentum and 0 without.
func (s SGD) Slots() int {
	if s.Momentum == 0 {
		return 0
	}
	return 1
}

// Check requires a momentum in [0, 1), above 0 for Nesterov, and a finite weight decay of 0 or
// more. A momentum of 1 would never forget a gradient.
func (s SGD) Check() error {
	if err := below1("momentum", s.Momentum); err != nil {
		return err
	}
	if s.Nesterov && s.Momentum == 0 {
		return fmt.Errorf("optim: Nesterov is set without a momentum: set Momentum, such as 0.9")
	}
	return notNegative("weight decay", s.WeightDecay)
}

// Update implements Optimizer. SGD does not use the step number.
func (s SGD) Update(_ int64, rate float64, param, grad []float32, state [][]float32) {
	checkLengths(s, param, grad, state)
	lr, decay, mu := float32(rate), float32(s.WeightDecay), float32(s.Momentum)
	if s.Momentum == 0 {
		for i, g := range grad {
			param[i] -= float32(lr * (g + float32(decay*param[i])))
		}
		return
	}
	velocity := state[0][:len(grad)] // lets the compiler drop bounds checks
	param = param[:len(grad)]
	for i, g := range grad {
		g += float32(decay * param[i])
		v := float32(mu*velocity[i]) + g
		velocity[i] = v
		if s.Nesterov {
			v = g + float32(mu*v)
		}
		param[i] -= float32(lr * v)
	}
}

// Adam is the optimizer of Kingma and Ba (arXiv 1412.6980). WeightDecay is L2 regularisation: it
// is added to the gradient. Zero values of Beta1, Beta2 and Epsilon mean 0.9, 0.999 and 1e-8.
type Adam struct {
	Beta1, Beta2, Epsilon float64
	WeightDecay           float64
}

// Slots is 2: the running means of the gradient and of its square.
func (Adam) Slots() int { return 2 }

// Check requires Beta1 and Beta2 in [0, 1), and finite Epsilon and WeightDecay of 0 or more.
func (a Adam) Check() error { return checkMoments(a.Beta1, a.Beta2, a.Epsilon, a.WeightDecay) }

// Update makes one step. The step number corrects the bias of the means, which begin at zero.
func (a Adam) Update(step int64, rate float64, param, grad []float32, state [][]float32) {
	checkLengths(a, param, grad, state)
	newMoments(step, rate, a.Beta1, a.Beta2, a.Epsilon).update(param, grad, state, float32(a.WeightDecay), 0)
}

// AdamW is the optimizer of Loshchilov and Hutter (arXiv 1711.05101): Adam with decoupled weight
// decay, which subtracts rate * WeightDecay * param in each step. Zero values of Beta1, Beta2 and
// Epsilon mean 0.9, 0.999 and 1e-8.
type AdamW struct {
	Beta1, Beta2, Epsilon float64
	WeightDecay           float64
}

// Slots is 2: the running means of the gradient and of its square.
func (AdamW) Slots() int { return 2 }

// Check requires Beta1 and Beta2 in [0, 1), and finite Epsilon and WeightDecay of 0 or more.
func (a AdamW) Check() error { return checkMoments(a.Beta1, a.Beta2, a.Epsilon, a.WeightDecay) }

// Update makes one step. The step number corrects the bias of the means, which begin at zero.
func (a AdamW) Update(step int64, rate float64, param, grad []float32, state [][]float32) {
	checkLengths(a, param, grad, state)
	m := newMoments(step, rate, a.Beta1, a.Beta2, a.Epsilon)
	m.update(param, grad, state, 0, float32(rate*a.WeightDecay))
}

// moments has the constants of one step of Adam. Both bias corrections are part of lr and eps, as
// in section 2 of the paper:
//
//	rate * (m/(1-b1^t)) / (sqrt(v/(1-b2^t)) + eps)  =  lr * m / (sqrt(v) + eps)
type moments struct {
	b1, b2, lr, eps float32
}

// newMoments returns the constants of a step, with defaults in place of zeros. It computes in
// float64: in the first steps 1 - b2^t is a difference of nearly equal numbers.
func newMoments(step int64, rate, b1, b2, eps float64) moments {
	b1, b2, eps = or(b1, 0.9), or(b2, 0.999), or(eps, 1e-8)
	root := math.Sqrt(1 - math.Pow(b2, float64(step)))
	return moments{
		b1: float32(b1), b2: float32(b2),
		lr:  float32(rate * root / (1 - math.Pow(b1, float64(step)))),
		eps: float32(eps * root),
	}
}

// update makes one step. l2 is the weight decay of Adam, shrink is the learning rate times the
// weight decay of AdamW; one of the two is zero. The float32 conversions prevent fused
// multiply-add, which rounds differently and which compilers emit only for some processors.
func (m moments) update(param, grad []float32, state [][]float32, l2, shrink float32) {
	mean, square := state[0], state[1][:len(state[0])]
	for i, average := range mean {
		p := param[i]
		g := grad[i] + float32(l2*p)
		average = float32(m.b1*average) + float32((1-m.b1)*g)
		v := float32(m.b2*square[i]) + float32((1-m.b2)*float32(g*g))
		mean[i], square[i] = average, v
		p -= float32(shrink * p)
		param[i] = p - float32(m.lr*average/(sqrt(v)+m.eps))
	}
}

// sqrt returns the correctly rounded square root, the same on every machine.
func sqrt(v float32) float32 { return float32(math.Sqrt(float64(v))) }

// or returns v, or the default if v is 0. The argument zero is this default.
func or(v, zero float64) float64 {
	if v == 0 {
		return zero
	}
	return v
}

// checkMoments returns an error if a setting of Adam or AdamW is outside its range.
func checkMoments(b1, b2, eps, decay float64) error {
	if err := below1("beta1", b1); err != nil {
		return err
	}
	if err := below1("beta2", b2); err != nil {
		return err
	}
	if err := notNegative("epsilon", eps); err != nil {
		return err
	}
	return notNegative("weight decay", decay)
}

// below1 requires v in [0, 1), which excludes NaN.
func below1(name string, v float64) error {
	if !(v >= 0 && v < 1) {
		return fmt.Errorf("optim: %s is %v, want 0 or more and less than 1", name, v)
	}
	return nil
}

// notNegative requires a finite v of 0 or more.
func notNegative(name string, v float64) error {
	if !(v >= 0) || math.IsInf(v, 1) {
		return fmt.Errorf("optim: %s is %v, want a finite number of 0 or more", name, v)
	}
	return nil
}

// checkLengths panics if lengths or the number of state vectors are wrong, because an update would
// corrupt the state.
func checkLengths(rule Optimizer, param, grad []float32, state [][]float32) {
	if len(param) != len(grad) || len(state) != rule.Slots() {
		panic(fmt.Sprintf("optim: %d elements with %d gradients and %d state vectors, want equal lengths and %d state vectors",
			len(param), len(grad), len(state), rule.Slots()))
	}
	for _, s := range state {
		if len(s) != len(param) {
			panic(fmt.Sprintf("optim: %d elements with a state vector of %d, want equal lengths", len(param), len(s)))
		}
	}
}
