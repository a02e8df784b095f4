package nn

import (
	"context"
	"fmt"

	"github.com/elrun/elrun/trainer/exact"
)

// Prefetcher is Data that can have samples read ahead: the model of its Network passes on what
// trainer.Model.Prefetch is told.
type Prefetcher interface {
	Prefetch(ctx context.Context, samples []int)
}

// Data is a set of labelled samples, each a vector of one length. It may be a Prefetcher.
type Data interface {
	// Len returns the number of samples.
	Len() int
	// Sample writes the inputs of sample i to dst and returns its class. Data that can
	// fail returns a class below 0, and has a method Err() error that says why.
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

// batch holds some samples in the order in which they were asked for.
type batch struct {
	inputs  []float32 // len(classes) vectors
	classes []int
}

// load fills the batch with the given samples of d, each of size inputs.
func (b *batch) load(d Data, samples []int, size, classes int) error {
	b.inputs = grow(b.inputs, len(samples)*size)
	b.classes = b.classes[:0]
	for k, i := range samples {
		if i < 0 || i >= d.Len() {
			return fmt.Errorf("nn: sample %d of %d asked for", i, d.Len())
		}
		class := d.Sample(b.inputs[k*size:(k+1)*size], i)
		if class < 0 || class >= classes {
			if f, ok := d.(interface{ Err() error }); ok && f.Err() != nil {
				return fmt.Errorf("nn: sample %d: %w", i, f.Err())
			}
			return fmt.Errorf("nn: sample %d is of class %d, the model has %d", i, class, classes)
		}
		b.classes = append(b.classes, class)
	}
	return nil
}

// grow returns a vector of n elements, in the memory of buf if it is large enough.
// The contents are undefined. It starts at an aligned address, as every vector does
// that kernels read: their sums would have other bits elsewhere.
func grow(buf []float32, n int) []float32 {
	if cap(buf) < n {
		return exact.Aligned(n)
	}
	return buf[:n]
}
