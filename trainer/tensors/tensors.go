// Package tensors trains parameters that are tensors of gorgonia.org/tensor. The trainer
// sees vectors; this package makes one of the other, in both directions, without a copy:
// training changes the tensor, and arithmetic of the tensor library changes what is
// trained.
//
//	weights := tensor.New(tensor.WithShape(784, 10), tensor.Of(tensor.Float32))
//	p, err := tensors.Param("weights", weights)        // for the model's Params
//	gradient, err := tensors.View(grad[0], 784, 10)    // in the model's gradient
//	_, err = tensor.MatMul(inputs, errors, tensor.WithIncr(gradient))
//
// examples/tensors is a whole program. Only programs that import this package have the
// tensor library in them, with the dozen modules that it needs.
package tensors

import (
	"fmt"

	"github.com/elrun/elrun/trainer"
	"gorgonia.org/tensor"
)

// Param makes a parameter of a dense float32 tensor, whose memory it shares. The tensor
// must be contiguous and row-major, so it cannot be a view of a part, nor transposed, and
// have a dimension at least, as a scalar holds its value instead of memory.
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

// View makes a dense tensor of row-major data, whose memory it shares: of a parameter or
// a gradient, or of rows of a data set. Every dimension must be positive, and their product
// is len(data).
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
