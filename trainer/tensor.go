package trainer

import (
	"fmt"

	"gorgonia.org/tensor"
)

// FromTensor makes a parameter of a dense float32 tensor, whose memory it shares:
// training changes the tensor. The tensor must be contiguous and row-major, so it
// cannot be a view of a part, nor transposed.
func FromTensor(name string, t *tensor.Dense) (Param, error) {
	if t.Dtype() != tensor.Float32 {
		return Param{}, fmt.Errorf("trainer: parameter %s from tensor: elements are %v, want float32", name, t.Dtype())
	}
	order := t.DataOrder()
	if t.RequiresIterator() || !order.IsRowMajor() || !order.IsContiguous() || t.IsMaterializable() {
		return Param{}, fmt.Errorf("trainer: parameter %s from tensor: it is not contiguous in row-major order", name)
	}
	// A tensor of one element may give its value instead of its memory.
	data, ok := t.Data().([]float32)
	if !ok || len(data) != t.Shape().TotalSize() {
		return Param{}, fmt.Errorf("trainer: parameter %s from tensor: %v elements have no memory of their own", name, t.Shape())
	}
	return Param{Name: name, Shape: t.Shape().Clone(), Data: data}, nil
}

// Tensor returns the parameter as a dense tensor that shares its memory. It panics
// if Shape and Data do not fit together.
func (p Param) Tensor() *tensor.Dense {
	return tensor.New(tensor.WithShape(p.Shape...), tensor.WithBacking(p.Data))
}
