package ring

import (
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// Number lists the element types of vectors: int8, int32, int64, uint8, uint32,
// uint64, float32, float64, Float16 and BFloat16.
type Number = dtype.Number

// Integer lists the integer element types.
type Integer = dtype.Integer

// Float16 is an IEEE 754 binary16 number in its bit pattern.
type Float16 = dtype.Float16

// BFloat16 is the upper half of an IEEE 754 binary32 number.
type BFloat16 = dtype.BFloat16

// Reduction says how two vectors become one.
type Reduction[T Number] struct {
	// Name is compared between ranks by its first 16 bytes.
	Name string
	// Commutative allows a fold in another order than that of the ranks. A
	// reduction that is not must still be associative.
	Commutative bool
	// Fold sets dst[i] = a[i] op b[i]. The three have one length; dst may be a or b.
	// The elements of a come from lower ranks than those of b unless Commutative.
	Fold func(dst, a, b []T)
	// FoldAll, if set, sets dst[k][i] = from[0][i] op from[1][i] op ... for every k, in one
	// pass. All have one length, and each of dst may be one of from. past is how many of dst,
	// the last of them, are not read again soon.
	FoldAll func(dst, from [][]T, past int)
	// Finish, if set, is applied once to the result of n ranks.
	Finish func(v []T, n int)
}

// Op is a reduction, for all uses passed without a call: Sum[float32].
type Op[T Number] func() Reduction[T]

// NewOp makes an Op of a user's own associative function. fold sets dst[i] =
// a[i] op b[i]; dst may be a or b; it may be called on any part of the vectors and
// from several goroutines at once. Where commutative is false a always comes
// from lower ranks than b, which excludes the ring algorithms.
func NewOp[T Number](name string, commutative bool, fold func(dst, a, b []T)) Op[T] {
	return func() Reduction[T] {
		return Reduction[T]{Name: name, Commutative: commutative, Fold: fold}
	}
}

// Sum adds. Integers wrap; float16 and bfloat16 add in float32 and round each time.
func Sum[T Number]() Reduction[T] {
	return Reduction[T]{Name: "sum", Commutative: true, Fold: kernel.Add[T], FoldAll: kernel.AddAll[T]}
}

// Prod multiplies, with the rounding of Sum.
func Prod[T Number]() Reduction[T] {
	return Reduction[T]{Name: "prod", Commutative: true, Fold: kernel.Mul[T]}
}

// Min takes the lesser element; NaN if either is NaN; -0 is less than 0.
func Min[T Number]() Reduction[T] {
	return Reduction[T]{Name: "min", Commutative: true, Fold: kernel.Min[T]}
}

// Max takes the greater element; NaN if either is NaN; 0 is greater than -0.
func Max[T Number]() Reduction[T] {
	return Reduction[T]{Name: "max", Commutative: true, Fold: kernel.Max[T]}
}

// Average is Sum divided by the number of ranks; integers truncate towards zero.
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
