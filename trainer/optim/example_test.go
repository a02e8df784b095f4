package optim_test

import (
	"fmt"

	"github.com/elrun/elrun/trainer/optim"
)

// Gradient descent with momentum finds the minimum of (x - 3)^2. The caller owns the state.
func ExampleNewState() {
	rule, rate := optim.SGD{Momentum: 0.9, Nesterov: true}, optim.Constant(0.05)
	x, grad := []float32{0}, []float32{0}
	state := optim.NewState(rule, len(x))
	for step := int64(1); step <= 200; step++ {
		grad[0] = 2 * (x[0] - 3)
		rule.Update(step, rate(step), x, grad, state)
	}
	fmt.Printf("%.3f, %d vector of memory\n", x[0], len(state))
	// Output: 3.000, 1 vector of memory
}

// rates prints the learning rates of a schedule at some steps.
func rates(s optim.Schedule, steps ...int64) {
	for _, step := range steps {
		fmt.Printf("%.3f ", s(step))
	}
	fmt.Println()
}

func ExampleConstant() {
	rates(optim.Constant(0.1), 1, 1000)
	// Output: 0.100 0.100
}

// The rate falls along half a cosine.
func ExampleCosine() {
	rates(optim.Cosine(0.1, 0.001, 100), 1, 50, 100, 200)
	// Output: 0.100 0.051 0.001 0.001
}

// The rate falls to a tenth every 30 steps.
func ExampleSteps() {
	rates(optim.Steps(0.1, 0.1, 30), 1, 30, 31, 61)
	// Output: 0.100 0.100 0.010 0.001
}

// The two vectors are one gradient: its norm is 5, and is reduced to 1.
func ExampleClip() {
	w, b := []float32{3}, []float32{4}
	optim.Clip([][]float32{w, b}, 1)
	fmt.Printf("%.1f %.1f\n", w, b)
	// Output: [0.6] [0.8]
}

func ExampleNorm() {
	fmt.Println(optim.Norm([][]float32{{3}, {4}}))
	// Output: 5
}
