package shm

import (
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// Folding is how vectors become one.
type Folding[T dtype.Number] struct {
	// Two sets dst = a op b, where a is of lower ranks than b and dst may be a or b.
	Two func(dst, a, b []T)
	// All, if set, folds any number of vectors in one pass into each of dst, which may be some
	// of them; past is how many of dst, the last of them, are not read again soon.
	All func(dst, from [][]T, past int)
}

// streamFrom returns how much the ranks write together, in bytes, if results pass by the cache
// that they share, of so many bytes: by the time that the end is written, the beginning would
// have left it. A large cache is that of a large machine, of which others have their part.
func streamFrom(cache int) int { return max(32<<20, cache/8) }

// streams reports whether results of so many bytes pass by the cache.
func (l *Lane) streams(bytes int) bool { return bytes*l.size >= l.segment.stream }

// into folds n vectors in their order into each of dst, which may be some of them. Where it
// folds two at a time, all but the last result go to partial, which is at least as long and may
// be dst[0] unless that is one of the vectors. The last of dst, so many as past says, are not
// read again soon.
func (f Folding[T]) into(dst [][]T, partial []T, from [][]T, past int) {
	switch {
	case len(from) == 1:
		copy(dst[0], from[0])
	case f.All != nil && (past > 0 || len(from) > 2 || len(dst) > 1):
		f.All(dst, from, past)
		return
	default:
		sum, partial := from[0], partial[:len(dst[0])]
		for _, v := range from[1 : len(from)-1] {
			f.Two(partial, sum, v)
			sum = partial
		}
		f.Two(dst[0], sum, from[len(from)-1])
	}
	for i, d := range dst[1:] {
		move(d, dst[0], kernel.Copying{Past: i+1 >= len(dst)-past})
	}
}

// move copies src to dst.
func move[T dtype.Number](dst, src []T, how kernel.Copying) {
	how.Copy(kernel.Bytes(dst), kernel.Bytes(src))
}
