package collective

import "github.com/elrun/elrun/ring"

// The element types and reductions of package ring, by alias.
type (
	// Number lists the element types: int8, int32, int64, uint8, uint32, uint64,
	// float32, float64, Float16 and BFloat16.
	Number = ring.Number
	// Integer lists the integer element types.
	Integer = ring.Integer
	// Float16 is an IEEE 754 binary16 number in its bit pattern.
	Float16 = ring.Float16
	// BFloat16 is the upper half of an IEEE 754 binary32 number.
	BFloat16 = ring.BFloat16
	// Reduction says how two vectors become one.
	Reduction[T Number] = ring.Reduction[T]
	// Op is a reduction as it is passed to a call: Sum[float32].
	Op[T Number] = ring.Op[T]
)

// NewOp makes an Op of a user's own associative function; see ring.NewOp.
func NewOp[T Number](name string, commutative bool, fold func(dst, a, b []T)) Op[T] {
	return ring.NewOp(name, commutative, fold)
}

// Sum adds; see ring.Sum.
func Sum[T Number]() Reduction[T] { return ring.Sum[T]() }

// Prod multiplies; see ring.Prod.
func Prod[T Number]() Reduction[T] { return ring.Prod[T]() }

// Min takes the lesser element; see ring.Min.
func Min[T Number]() Reduction[T] { return ring.Min[T]() }

// Max takes the greater element; see ring.Max.
func Max[T Number]() Reduction[T] { return ring.Max[T]() }

// Average is the sum divided by the number of ranks that went into it: all of
// them, or those up to the caller in Scan and before it in ExScan.
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
