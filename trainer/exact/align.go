package exact

import "reflect"

// Alignment is the boundary, in bytes, at which vectors must begin so that results do not depend on
// their addresses. Vector kernels sum the elements before and after such boundaries separately, so
// the same product has other bits at another address. 64 bytes are a cache line and the widest
// vector register.
const Alignment = 64

// step is the alignment in elements.
const step = Alignment / 4

// Aligned returns n zeros that begin at a multiple of Alignment. The capacity is n.
func Aligned(n int) []float32 {
	v := make([]float32, n+step-1)
	// The Go heap does not move objects, so the address stays valid; reflection makes v escape to
	// the heap.
	off := int(-reflect.ValueOf(v).Pointer()%Alignment) / 4
	return v[off : off+n : off+n]
}

// Views returns one vector per size, each at a multiple of Alignment, and the flat vector that
// contains them. Gaps between vectors are shorter than Alignment. Everything is zero, and
// clear(flat) makes it zero again.
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

// roundUp returns n rounded up to a multiple of the alignment, in elements.
func roundUp(n int) int { return (n + step - 1) / step * step }
