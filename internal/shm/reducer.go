package shm

import (
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// Reducer is a reduction of vectors.
type Reducer[T dtype.Number] struct {
	// Pair sets dst = a op b, where a comes from lower ranks than b, and dst may be a or b.
	Pair func(dst, a, b []T)
	// All, if not nil, reduces any number of vectors in one pass into each vector of dst, which
	// may be among them. The last nonTemporal vectors of dst are not read again soon and may be
	// written by non-temporal stores.
	All func(dst, from [][]T, nonTemporal int)
}

// nonTemporalFrom returns the bytes of all ranks' results from which results are written by
// non-temporal stores: so long a result would evict its own beginning from the shared cache, of
// cache bytes. Large caches belong to large machines, on which other programs use a part.
func nonTemporalFrom(cache int) int { return max(32<<20, cache/8) }

// exceedsCache reports whether results of so many bytes at each rank exceed the shared cache.
func (l *Lane) exceedsCache(bytes int) bool { return bytes*l.size >= l.segment.cacheLimit }

// reduceInto reduces the vectors of from, in their order, into each vector of dst, which may be
// among them. Where it reduces in pairs, all results but the last go to partial, which is at least
// as long and may be dst[0] unless that is in from. For nonTemporal see Reducer.All.
func (f Reducer[T]) reduceInto(dst [][]T, partial []T, from [][]T, nonTemporal int) {
	switch {
	case len(from) == 1:
		copy(dst[0], from[0])
	case f.All != nil && (nonTemporal > 0 || len(from) > 2 || len(dst) > 1):
		f.All(dst, from, nonTemporal)
		return
	default:
		sum, partial := from[0], partial[:len(dst[0])]
		for _, v := range from[1 : len(from)-1] {
			f.Pair(partial, sum, v)
			sum = partial
		}
		f.Pair(dst[0], sum, from[len(from)-1])
	}
	for i, d := range dst[1:] {
		copyVector(d, dst[0], kernel.Copying{NonTemporal: i+1 >= len(dst)-nonTemporal})
	}
}

// copyVector copies src to dst.
func copyVector[T dtype.Number](dst, src []T, how kernel.Copying) {
	how.Copy(kernel.Bytes(dst), kernel.Bytes(src))
}
