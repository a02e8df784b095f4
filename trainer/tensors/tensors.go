// Package tensors connects the trainer with gorgonia.org/tensor. The trainer has parameters and
// gradients as vectors; this package converts between vectors and tensors without a copy.
// Training changes the tensor, and operations of the tensor library change the trained
// parameters.
//
//	weights := tensor.New(tensor.WithShape(784, 10), tensor.Of(tensor.Float32))
//	p, err := tensors.Param("weights", weights)        // for the model's Params
//	gradient, err := tensors.View(grad[0], 784, 10)    // in the model's gradient
//	_, err = tensor.MatMul(inputs, errors, tensor.WithIncr(gradient))
//
// examples/tensors is a complete program. The tensor library and its dozen dependencies are
// linked only into programs that import this package.
package tensors

import (
	"fmt"

	"github.com/elrun/elrun/trainer"
	"gorgonia.org/tensor"
)

// Param returns a parameter that shares the memory of a dense float32 tensor. The tensor must be
// contiguous and row-major, so it can be neither a view of a part nor transposed. It must have at
// least one dimension, because the tensor library keeps a scalar by value, without memory to share.
func Param(name string, t *tensor.Dense) (trainer.Param, error) {
	if t == nil {
		return trainer.Param{}, fmt.Errorf("tensors: parameter %s: the tensor is nil", name)
	}
	if t.Dtype() != tensor.Float32 {
		return trainer.Param{}, fmt.Errorf("tensors: parameter %s: elements are %v, want float32", name, t.Dtype())
	}
	order := t.DataOrder()
	if t.RequiresIterator() || !order.IsRowMajor() || !order.IsContiguous() || t.IsMaterializable() {
		return trainer.Param{}, fmt.Errorf("tensors: parameter %s: it is not contiguous in row-major order; use a Clone or Materialize it", name)
	}
	data, ok := t.Data().([]float32)
	if !ok || len(data) != t.Shape().TotalSize() {
		return trainer.Param{}, fmt.Errorf("tensors: parameter %s: a scalar has no memory of its own; give it the shape (1)", name)
	}
	return trainer.Param{Name: name, Shape: t.Shape().Clone(), Data: data}, nil
}

// View returns a dense tensor that shares the memory of row-major data: a parameter, a gradient,
// or rows of a data set. Each dimension must be positive, and their product len(data).
func View(data []float32, shape ...int) (*tensor.Dense, error) {
	rest := len(data)
	for _, n := range shape {
		if n < 1 || rest%n != 0 {
			rest = 0
			break
		}
		rest /= n
	}
	if len(shape) == 0 || rest != 1 {
		return nil, fmt.Errorf("tensors: view of %d elements as %v: want positive dimensions whose product is the number of elements", len(data), shape)
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data)), nil
}
