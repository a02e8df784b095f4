package collective

import "github.com/elrun/elrun/ring"

// The element types and reductions of package ring, by alias.
type (
	// Number lists the element types: int, int8, int32, int64, uint8, uint32, uint64, float32,
	// float64, Float16 and BFloat16. For bool use uint8 with 0 and 1, as And, Or and Xor do.
	Number = ring.Number
	// Integer lists the integer element types.
	Integer = ring.Integer
	// Float16 is an IEEE 754 binary16 number in its bit pattern.
	Float16 = ring.Float16
	// BFloat16 is the upper half of an IEEE 754 binary32 number.
	BFloat16 = ring.BFloat16
	// Reduction is the function that combines two vectors, with its name and properties.
	Reduction[T Number] = ring.Reduction[T]
	// Op is a reduction as it is passed to a call: Sum[float32].
	Op[T Number] = ring.Op[T]
)

// NewOp returns an Op for a user's own associative function; see ring.NewOp. If the function reduces
// several elements as one, such as pairs, call OfWidth on the result.
func NewOp[T Number](name string, commutative bool, fold func(dst, a, b []T)) Op[T] {
	return ring.NewOp(name, commutative, fold)
}

// Sum adds elements; see ring.Sum.
func Sum[T Number]() Reduction[T] { return ring.Sum[T]() }

// Prod multiplies elements; see ring.Prod.
func Prod[T Number]() Reduction[T] { return ring.Prod[T]() }

// Min takes the smaller element; see ring.Min.
func Min[T Number]() Reduction[T] { return ring.Min[T]() }

// Max takes the greater element; see ring.Max.
func Max[T Number]() Reduction[T] { return ring.Max[T]() }

// MinLoc finds the least values of all ranks and their indices, in vectors of pairs; see ring.MinLoc.
func MinLoc[T Number]() Reduction[T] { return ring.MinLoc[T]() }

// MaxLoc finds the greatest values of all ranks and their indices, in vectors of pairs; see
// ring.MaxLoc.
func MaxLoc[T Number]() Reduction[T] { return ring.MaxLoc[T]() }

// Average is the sum divided by the number of reduced ranks: all ranks, in Scan the ranks
// up to the caller, and in ExScan the ranks below it.
func Average[T Number]() Reduction[T] { return ring.Average[T]() }

// And is the logical and; see ring.And.
func And[T Number]() Reduction[T] { return ring.And[T]() }

// Or is the logical or; see ring.Or.
func Or[T Number]() Reduction[T] { return ring.Or[T]() }

// Xor is the logical exclusive or; see ring.Xor.
func Xor[T Number]() Reduction[T] { return ring.Xor[T]() }

// BitAnd is the bitwise and.
func BitAnd[T Integer]() Reduction[T] { return ring.BitAnd[T]() }

// BitOr is the bitwise or.
func BitOr[T Integer]() Reduction[T] { return ring.BitOr[T]() }

// BitXor is the bitwise exclusive or.
func BitXor[T Integer]() Reduction[T] { return ring.BitXor[T]() }
