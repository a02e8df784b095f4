package tensors_test

import (
	"fmt"

	"github.com/elrun/elrun/trainer/tensors"
	"gorgonia.org/tensor"
)

// Training writes to the memory of the tensor.
func ExampleParam() {
	weights := tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float32{1, 2, 3, 4}))
	p, err := tensors.Param("weights", weights)
	if err != nil {
		fmt.Println(err)
		return
	}
	p.Data[3] = 40
	v, err := weights.At(1, 1)
	fmt.Println(p.Name, p.Shape, v, err)
	// Output: weights [2 2] 40 <nil>
}

// A matrix product is added to a gradient. The gradient's memory belongs to Run.
func ExampleView() {
	grad := []float32{1, 1, 1, 1}
	gradient, err := tensors.View(grad, 2, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	inputs := tensor.New(tensor.WithShape(2, 1), tensor.WithBacking([]float32{1, 2}))
	misses := tensor.New(tensor.WithShape(1, 2), tensor.WithBacking([]float32{10, 20}))
	if _, err := tensor.MatMul(inputs, misses, tensor.WithIncr(gradient)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(grad)
	// Output: [11 21 21 41]
}
