package shm

import "github.com/elrun/elrun/internal/raw"

// Folding is how vectors become one.
type Folding[T raw.Number] struct {
	// Two sets dst = a op b, where a is of lower ranks than b and dst may be a or b.
	Two func(dst, a, b []T)
	// All, if set, folds any number of vectors in one pass. dst may be one of them; stream
	// says that it is not read again soon.
	All func(dst []T, from [][]T, stream bool)
}

// streamFrom is how much the ranks write together, in bytes, if the results pass by the
// cache that they share: by the time that the end is written, the beginning would have
// left it.
const streamFrom = 32 << 20

// streams reports whether results of so many bytes pass by the cache.
func (l *Lane) streams(bytes int) bool { return bytes*l.size >= streamFrom }

// into folds n vectors in their order into dst, which may be one of them. All but the last
// fold of two go to partial, which may be dst unless that is one of the vectors.
func (f Folding[T]) into(dst, partial []T, from [][]T, stream bool) {
	switch {
	case len(from) == 1:
		copy(dst, from[0])
	case f.All != nil && (stream || len(from) > 2):
		f.All(dst, from, stream)
	default:
		sum := from[0]
		for _, v := range from[1 : len(from)-1] {
			f.Two(partial, sum, v)
			sum = partial
		}
		f.Two(dst, sum, from[len(from)-1])
	}
}

// move copies src to dst.
func move[T raw.Number](dst, src []T, stream bool) {
	if stream {
		raw.CopyStream(raw.Bytes(dst), raw.Bytes(src))
		return
	}
	copy(dst, src)
}
