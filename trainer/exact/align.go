package exact

import "reflect"

// Alignment is the boundary, in bytes, at which vectors start whose values must not
// depend on where they lie. Kernels that use vector instructions add up the elements
// before and after such boundaries apart, so that the same product has other bits at
// another address. 64 bytes are a cache line and the widest register.
const Alignment = 64

// step is the alignment in elements.
const step = Alignment / 4

// Aligned returns n zeros that start at a multiple of Alignment. It has no capacity
// beyond n.
func Aligned(n int) []float32 {
	v := make([]float32, n+step-1)
	// Memory of the heap does not move, so the address can be relied on; reflection
	// makes v escape to the heap.
	off := int(-reflect.ValueOf(v).Pointer()%Alignment) / 4
	return v[off : off+n : off+n]
}

// Views returns one vector per size, each at a multiple of Alignment, and the flat
// vector that they are cut from. Between them are gaps of less than Alignment bytes;
// the whole is zero, and clear(flat) makes it so again.
func Views(sizes []int) (flat []float32, views [][]float32) {
	total := 0
	for _, n := range sizes {
		total += roundUp(n)
	}
	flat, views = Aligned(total), make([][]float32, len(sizes))
	from := 0
	for i, n := range sizes {
		views[i] = flat[from : from+n : from+n]
		from += roundUp(n)
	}
	return flat, views
}

// roundUp returns the next multiple of the alignment, in elements.
func roundUp(n int) int { return (n + step - 1) / step * step }
