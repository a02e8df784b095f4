package ring

import (
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// Number lists the element types of vectors: int, int8, int32, int64, uint8, uint32, uint64, float32,
// float64, Float16 and BFloat16.
type Number = dtype.Number

// Integer lists the integer element types.
type Integer = dtype.Integer

// Float16 is an IEEE 754 binary16 number, as its bit pattern; dtype.ToFloat16 rounds to it.
type Float16 = dtype.Float16

// BFloat16 is the upper half of an IEEE 754 binary32 number, as its bit pattern; dtype.ToBFloat16 rounds
// to it.
type BFloat16 = dtype.BFloat16

// Reduction describes how vectors are combined element by element.
type Reduction[T Number] struct {
	// Name identifies the reduction: ranks compare its first 16 bytes to find calls that do not
	// match.
	Name string
	// Commutative allows a reduction in another order than the order of the ranks. Every reduction
	// must be associative.
	Commutative bool
	// Width, if it is more than 1, is the number of consecutive elements that Fold reduces as one
	// group, such as 2 for pairs of a value and an index; at most MaxWidth. The lengths of vectors
	// and chunks are then multiples of Width, and the functions below get whole groups only.
	Width int
	// Fold reduces two vectors: dst[i] = a[i] op b[i]. All three have the same length; dst may be a
	// or b. Unless Commutative is set, the elements of a come from lower ranks than the elements of
	// b. Fold may be called on any part of the vectors and from several goroutines at once.
	Fold func(dst, a, b []T)
	// FoldAll, if set, reduces many vectors in one pass: dst[k][i] = from[0][i] op from[1][i] op
	// ... for every k. All vectors have the same length, and each vector of dst may also be one of
	// from. The argument past is a number of vectors at the end of dst: these are not read again
	// soon, so they may be written by non-temporal stores.
	FoldAll func(dst, from [][]T, past int)
	// Finish, if set, is called once on the reduced vector of n ranks.
	Finish func(v []T, n int)
}

// MaxWidth is the maximum of Reduction.Width.
const MaxWidth = 32

// Op is a function that returns a reduction. The functions of package collective have a parameter
// of this type, so that users pass Sum[float32] without calling it.
type Op[T Number] func() Reduction[T]

// NewOp returns an Op for a user's own associative function. fold sets dst[i] = a[i] op b[i]; dst
// may be a or b. fold may be called on any part of the vectors and from several goroutines at once.
// If it reduces several elements as one, such as pairs, use OfWidth. If commutative is false, a
// always comes from lower ranks than b; the ring algorithms then refuse the operation.
func NewOp[T Number](name string, commutative bool, fold func(dst, a, b []T)) Op[T] {
	return func() Reduction[T] {
		return Reduction[T]{Name: name, Commutative: commutative, Fold: fold}
	}
}

// OfWidth returns the Op for groups of n elements: fold then gets whole groups only. See
// Reduction.Width.
//
//	pairs := ring.NewOp("nearest", true, nearest).OfWidth(2)
func (op Op[T]) OfWidth(n int) Op[T] {
	return func() Reduction[T] {
		r := op()
		r.Width = n
		return r
	}
}

// Sum adds. Integers wrap around; float16 and bfloat16 are added in float32 and rounded after each
// addition.
func Sum[T Number]() Reduction[T] {
	return Reduction[T]{Name: "sum", Commutative: true, Fold: kernel.Add[T], FoldAll: kernel.AddAll[T]}
}

// Prod multiplies, with the overflow and rounding of Sum.
func Prod[T Number]() Reduction[T] {
	return Reduction[T]{Name: "prod", Commutative: true, Fold: kernel.Mul[T]}
}

// Min returns the lesser element; NaN if either is NaN. -0 is less than 0.
func Min[T Number]() Reduction[T] {
	return Reduction[T]{Name: "min", Commutative: true, Fold: kernel.Min[T]}
}

// Max returns the greater element; NaN if either is NaN. 0 is greater than -0.
func Max[T Number]() Reduction[T] {
	return Reduction[T]{Name: "max", Commutative: true, Fold: kernel.Max[T]}
}

// Average is Sum divided by the number of ranks; integer quotients truncate towards zero.
func Average[T Number]() Reduction[T] {
	return Reduction[T]{Name: "average", Commutative: true, Fold: kernel.Add[T], FoldAll: kernel.AddAll[T], Finish: kernel.DivideBy[T]}
}

// And is 1 where both elements are nonzero and 0 elsewhere.
func And[T Number]() Reduction[T] {
	return Reduction[T]{Name: "and", Commutative: true, Fold: kernel.And[T]}
}

// Or is 1 where either element is nonzero and 0 elsewhere.
func Or[T Number]() Reduction[T] {
	return Reduction[T]{Name: "or", Commutative: true, Fold: kernel.Or[T]}
}

// Xor is 1 where exactly one element is nonzero and 0 elsewhere.
func Xor[T Number]() Reduction[T] {
	return Reduction[T]{Name: "xor", Commutative: true, Fold: kernel.Xor[T]}
}

// BitAnd is the bitwise and.
func BitAnd[T Integer]() Reduction[T] {
	return Reduction[T]{Name: "bitand", Commutative: true, Fold: kernel.BitAnd[T]}
}

// BitOr is the bitwise or.
func BitOr[T Integer]() Reduction[T] {
	return Reduction[T]{Name: "bitor", Commutative: true, Fold: kernel.BitOr[T]}
}

// BitXor is the bitwise exclusive or.
func BitXor[T Integer]() Reduction[T] {
	return Reduction[T]{Name: "bitxor", Commutative: true, Fold: kernel.BitXor[T]}
}
