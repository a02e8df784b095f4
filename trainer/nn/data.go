package nn

import (
	"context"
	"fmt"

	"github.com/elrun/elrun/trainer/exact"
)

// Prefetcher is implemented by Data that can read samples before they are used. The Model of a
// Network calls Prefetch as trainer.Model.Prefetch describes.
type Prefetcher interface {
	Prefetch(ctx context.Context, samples []int)
}

// Data is a set of labelled samples, whose inputs are vectors of one length. It may be a
// Prefetcher.
type Data interface {
	// Len returns the number of samples.
	Len() int
	// Sample writes the inputs of sample i to dst, which the caller owns, and returns its class.
	// Data that can fail returns a class below 0 and has a method Err() error that returns the
	// cause.
	Sample(dst []float32, i int) (class int)
}

// Table is Data held in memory.
type Table struct {
	Inputs  [][]float32
	Classes []int // one per element of Inputs
}

// Len returns the number of samples.
func (t Table) Len() int { return len(t.Inputs) }

// Sample copies the inputs of sample i to dst and returns its class.
func (t Table) Sample(dst []float32, i int) int {
	copy(dst, t.Inputs[i])
	return t.Classes[i]
}

// batch holds the inputs and classes of samples, in the order of the last call of load.
type batch struct {
	inputs  []float32 // len(classes) vectors, one after the other
	classes []int
}

// load replaces the batch by the given samples of d. Each sample has size inputs; a class that is
// not below the model's number of classes is an error.
func (b *batch) load(d Data, samples []int, size, classes int) error {
	b.inputs = grow(b.inputs, len(samples)*size)
	b.classes = b.classes[:0]
	for k, i := range samples {
		if i < 0 || i >= d.Len() {
			return fmt.Errorf("nn: sample %d does not exist: the data have %d samples, numbered from 0", i, d.Len())
		}
		class := d.Sample(b.inputs[k*size:(k+1)*size], i)
		if class < 0 || class >= classes {
			if f, ok := d.(interface{ Err() error }); ok && f.Err() != nil {
				return fmt.Errorf("nn: sample %d: %w", i, f.Err())
			}
			return fmt.Errorf("nn: sample %d has class %d, but the model has only the classes below %d: give its last layer more outputs", i, class, classes)
		}
		b.classes = append(b.classes, class)
	}
	return nil
}

// grow returns a vector of n elements, in the memory of buf if buf is large enough. Its contents
// are undefined. The vector starts at an aligned address, like all operands of vector kernels: at
// other addresses the kernels add in another order, and sums have other bits.
func grow(buf []float32, n int) []float32 {
	if cap(buf) < n {
		return exact.Aligned(n)
	}
	return buf[:n]
}
