package ring

import (
	"cmp"

	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// MinLoc finds the least values and where they are. A vector consists of pairs: v[2i] is a value and
// v[2i+1] its index, a number that T holds exactly, such as a rank. Of two pairs the result is the
// one with the lesser value, and for equal values the one with the lesser index. A NaN counts as
// less than all numbers; -0 and 0 are equal.
func MinLoc[T Number]() Reduction[T] {
	return Reduction[T]{Name: "minloc", Commutative: true, Width: 2, Fold: minLoc[T]}
}

// MaxLoc is MinLoc for the greatest values: for equal values, too, the result has the lesser index.
// A NaN counts as greater than all numbers.
func MaxLoc[T Number]() Reduction[T] {
	return Reduction[T]{Name: "maxloc", Commutative: true, Width: 2, Fold: maxLoc[T]}
}

// minLoc is the Fold of MinLoc.
func minLoc[T Number](dst, a, b []T) { foldPairs(dst, a, b, false) }

// maxLoc is the Fold of MaxLoc.
func maxLoc[T Number](dst, a, b []T) { foldPairs(dst, a, b, true) }

// foldPairs copies the pair of a or of b to dst, whichever comes first. Float16 and BFloat16 are
// compared by their values, not by their bits.
func foldPairs[T Number](dst, a, b []T, greatest bool) {
	t := dtype.TypeOf[T]()
	half := t == dtype.F16 || t == dtype.BF16
	for i := 0; i < len(dst); i += 2 {
		first := a[i : i+2]
		if half {
			if orderPairs(kernel.ToFloat64(b[i]), kernel.ToFloat64(a[i]), kernel.ToFloat64(b[i+1]), kernel.ToFloat64(a[i+1]), greatest) < 0 {
				first = b[i : i+2]
			}
		} else if orderPairs(b[i], a[i], b[i+1], a[i+1], greatest) < 0 {
			first = b[i : i+2]
		}
		copy(dst[i:], first)
	}
}

// orderPairs compares two pairs with the values x and y; it is negative if the pair of x comes
// first. cmp.Compare orders NaN before all numbers.
func orderPairs[V cmp.Ordered](x, y, indexOfX, indexOfY V, greatest bool) int {
	order := cmp.Compare(x, y)
	if greatest && x == x && y == y { // a NaN comes first among the greatest values, too
		order = -order
	}
	return cmp.Or(order, cmp.Compare(indexOfX, indexOfY))
}
