package exact_test

import (
	"fmt"

	"github.com/elrun/elrun/trainer/exact"
)

// Three microbatches have the same sum bit for bit, whether one peer or two peers add them.
func Example() {
	scale, err := exact.New(1, 3)
	if err != nil {
		panic(err)
	}
	gradients := [][]float32{{0.1, 2}, {1e-7, -3}, {-0.3, 0.7}}

	alone := make([]int32, 2)
	peaks := make([]exact.Peak, 1)
	for _, g := range gradients {
		peaks[0] = max(peaks[0], scale.Add(0, alone, g))
	}
	a, b := make([]int32, 2), make([]int32, 2)
	scale.Add(0, b, gradients[2])
	scale.Add(0, a, gradients[1])
	scale.Add(0, b, gradients[0])

	mean := make([]float32, 2)
	scale.Mean(0, mean, alone, 3)
	fmt.Println(scale.Fits(peaks), alone[0] == a[0]+b[0], alone[1] == a[1]+b[1])
	fmt.Printf("%.4f\n", mean)
	// Output:
	// true true true
	// [-0.0667 -0.1000]
}
