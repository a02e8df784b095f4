package kernel

import (
	"fmt"

	"github.com/elrun/elrun/dtype"
)

// The exported kernels check their lengths. Then they call assembly (simd_amd64.go) if it exists
// for the operation, the type and the processor, and otherwise a loop in Go (loops.go). Float16 and
// BFloat16 are integer types to Go, so the loops must never get them: they are converted to float32
// first (half.go).
//
// Assembly and loops give the same bits, except for the bits of a NaN. The bits of a NaN are not
// defined: they may come from either operand, or from both.

// Add sets dst[i] = a[i] + b[i]. Integers wrap around. dst may be a or b.
func Add[T dtype.Number](dst, a, b []T) { fold(levelHere(), opAdd, dst, a, b) }

// Mul sets dst[i] = a[i] * b[i]. Integers wrap around. dst may be a or b.
func Mul[T dtype.Number](dst, a, b []T) { fold(levelHere(), opMul, dst, a, b) }

// Min sets dst[i] to the lesser of a[i] and b[i]: NaN if either is NaN; -0 is
// less than 0. dst may be a or b.
func Min[T dtype.Number](dst, a, b []T) { fold(levelHere(), opMin, dst, a, b) }

// Max sets dst[i] to the greater of a[i] and b[i]: NaN if either is NaN; 0 is
// greater than -0. dst may be a or b.
func Max[T dtype.Number](dst, a, b []T) { fold(levelHere(), opMax, dst, a, b) }

// And sets dst[i] to 1 where a[i] and b[i] are nonzero and to 0 elsewhere. NaN is
// nonzero. dst may be a or b.
func And[T dtype.Number](dst, a, b []T) { fold(levelHere(), opAnd, dst, a, b) }

// Or sets dst[i] to 1 where a[i] or b[i] is nonzero and to 0 elsewhere. NaN is
// nonzero. dst may be a or b.
func Or[T dtype.Number](dst, a, b []T) { fold(levelHere(), opOr, dst, a, b) }

// Xor sets dst[i] to 1 where exactly one of a[i] and b[i] is nonzero and to 0
// elsewhere. NaN is nonzero. dst may be a or b.
func Xor[T dtype.Number](dst, a, b []T) { fold(levelHere(), opXor, dst, a, b) }

// BitAnd sets dst[i] = a[i] & b[i]. dst may be a or b.
func BitAnd[T dtype.Integer](dst, a, b []T) { foldBits(levelHere(), opBitAnd, dst, a, b) }

// BitOr sets dst[i] = a[i] | b[i]. dst may be a or b.
func BitOr[T dtype.Integer](dst, a, b []T) { foldBits(levelHere(), opBitOr, dst, a, b) }

// BitXor sets dst[i] = a[i] ^ b[i]. dst may be a or b.
func BitXor[T dtype.Integer](dst, a, b []T) { foldBits(levelHere(), opBitXor, dst, a, b) }

// DivideBy divides every element of v by n, which must be positive. Integer quotients truncate
// towards zero; they are 0 for an n that T cannot hold.
func DivideBy[T dtype.Number](v []T, n int) {
	if n <= 0 {
		panic(fmt.Sprintf("kernel: DivideBy %d: not positive", n))
	}
	if !divideVectors(levelHere(), v, n) {
		divideLoop(v, n)
	}
}

// divideLoop is DivideBy in Go. 64-bit integers are divided in their own type; narrower ones in
// int64, because n may exceed their range.
func divideLoop[T dtype.Number](v []T, n int) {
	switch v := any(v).(type) {
	case []float32:
		divide(v, float32(n))
	case []float64:
		divide(v, float64(n))
	case []dtype.Float16:
		divideHalf(v, n)
	case []dtype.BFloat16:
		divideHalf(v, n)
	case []uint64:
		divide(v, uint64(n))
	case []int64:
		divide(v, int64(n))
	case []int:
		divide(v, n)
	case []int32:
		divideNarrow(v, n)
	case []uint32:
		divideNarrow(v, n)
	case []int8:
		divideNarrow(v, n)
	case []uint8:
		divideNarrow(v, n)
	}
}

// fold reduces two vectors at a given level: by assembly if there is some, otherwise by a loop.
func fold[T dtype.Number](l level, op operation, dst, a, b []T) {
	checkLengths(len(dst), len(a), len(b))
	if !foldVectors(l, op, dst, a, b) {
		foldLoop(op, dst, a, b)
	}
}

// foldBits is fold for the bitwise operations.
func foldBits[T dtype.Integer](l level, op operation, dst, a, b []T) {
	checkLengths(len(dst), len(a), len(b))
	if !foldVectors(l, op, dst, a, b) {
		bitLoop(op, dst, a, b)
	}
}

// foldLoop is fold in Go.
func foldLoop[T dtype.Number](op operation, dst, a, b []T) {
	if isHalf[T]() {
		foldHalf(op, dst, a, b)
		return
	}
	loop(op, dst, a, b)
}

// isHalf reports whether T is Float16 or BFloat16, whose arithmetic is in float32.
func isHalf[T dtype.Number]() bool {
	t := dtype.TypeOf[T]()
	return t == dtype.F16 || t == dtype.BF16
}

// checkLengths panics unless the lengths are equal.
func checkLengths(dst, a, b int) {
	if dst != a || dst != b {
		panic(fmt.Sprintf("kernel: lengths differ: dst %d, a %d, b %d", dst, a, b))
	}
}
