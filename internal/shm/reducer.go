package shm

import (
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// Reducer is a reduction of vectors.
type Reducer[T dtype.Number] struct {
	// Width is the number of consecutive elements that are reduced as one group; 0 stands for 1.
	// Lengths and bounds of chunks are multiples of it, and Pair and All get whole groups only. A
	// group has at most 256 bytes, so that it fits any chunk of a block.
	Width int
	// Pair sets dst = a op b, where a comes from lower ranks than b, and dst may be a or b.
	Pair func(dst, a, b []T)
	// All, if not nil, reduces any number of vectors in one pass into each vector of dst. The
	// vectors of dst may be among the reduced ones. The last nonTemporal vectors of dst are not
	// read again soon and may be written by non-temporal stores.
	All func(dst, from [][]T, nonTemporal int)
}

// group returns the number of elements that are reduced as one.
func (r Reducer[T]) group() int { return max(1, r.Width) }

// reduceInto reduces the vectors in the list from, in their order, into each vector of dst. The
// vectors of dst may be in that list. If it reduces in pairs, all results but the last go to
// partial, which is at least as long as a vector. partial may be dst[0], unless dst[0] is in the
// list from. For nonTemporal see Reducer.All.
func (r Reducer[T]) reduceInto(dst [][]T, partial []T, from [][]T, nonTemporal int) {
	switch {
	case len(from) == 1:
		copy(dst[0], from[0])
	case r.All != nil && (nonTemporal > 0 || len(from) > 2 || len(dst) > 1):
		r.All(dst, from, nonTemporal)
		return
	default:
		sum, partial := from[0], partial[:len(dst[0])]
		for _, v := range from[1 : len(from)-1] {
			r.Pair(partial, sum, v)
			sum = partial
		}
		r.Pair(dst[0], sum, from[len(from)-1])
	}
	for i, d := range dst[1:] {
		copyVector(d, dst[0], kernel.Copying{NonTemporal: i+1 >= len(dst)-nonTemporal})
	}
}

// copyVector copies src to dst.
func copyVector[T dtype.Number](dst, src []T, how kernel.Copying) {
	how.Copy(kernel.Bytes(dst), kernel.Bytes(src))
}
