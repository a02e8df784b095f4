package kernel

import "github.com/elrun/elrun/dtype"

// One loop per operation. The caller has compared the lengths of the vectors. Each loop first cuts
// a and b to the length of dst, so that the compiler can omit bounds checks.

// native is the constraint for types with arithmetic in Go. dtype.Number also has Float16 and
// BFloat16, which are stored as integers.
type native interface {
	dtype.Integer | float32 | float64
}

// add is Add without the check of the lengths.
func add[T dtype.Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

// mul is Mul without the check of the lengths.
func mul[T dtype.Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

// lesser relies on the built-in min, which treats NaN and -0 as Min documents.
func lesser[T dtype.Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = min(a[i], b[i])
	}
}

// greater relies on the built-in max, as lesser relies on min.
func greater[T dtype.Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = max(a[i], b[i])
	}
}

// and is And without the check of the lengths. In Go NaN != 0 holds, so NaN is true here and in the
// two loops below, as And documents.
func and[T dtype.Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = truth[T](a[i] != 0 && b[i] != 0)
	}
}

// or is Or without the check of the lengths.
func or[T dtype.Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = truth[T](a[i] != 0 || b[i] != 0)
	}
}

// xor is Xor without the check of the lengths.
func xor[T dtype.Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = truth[T]((a[i] != 0) != (b[i] != 0))
	}
}

// truth converts a bool to 1 or 0.
func truth[T dtype.Number](b bool) T {
	if b {
		return 1
	}
	return 0
}

// divide divides the elements of v by a number that fits in T.
func divide[T native](v []T, by T) {
	for i := range v {
		v[i] /= by
	}
}

// divideNarrow divides in int64, which holds every v[i] and every n.
func divideNarrow[T int8 | int32 | uint8 | uint32](v []T, n int) {
	by := int64(n)
	for i := range v {
		v[i] = T(int64(v[i]) / by)
	}
}

// operation identifies a loop. It is used in a switch, as a function value would move the blocks of
// foldHalf from the stack to the heap.
type operation int

const (
	opAdd operation = iota
	opMul
	opMin
	opMax
	opAnd
	opOr
	opXor
	opBitAnd
	opBitOr
	opBitXor
)

// loop applies op to types other than Float16 and BFloat16.
func loop[T dtype.Number](op operation, dst, a, b []T) {
	switch op {
	case opAdd:
		add(dst, a, b)
	case opMul:
		mul(dst, a, b)
	case opMin:
		lesser(dst, a, b)
	case opMax:
		greater(dst, a, b)
	case opAnd:
		and(dst, a, b)
	case opOr:
		or(dst, a, b)
	case opXor:
		xor(dst, a, b)
	}
}

// bitLoop applies the bitwise operations, which Go does not have for floats.
func bitLoop[T dtype.Integer](op operation, dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	switch op {
	case opBitAnd:
		for i := range dst {
			dst[i] = a[i] & b[i]
		}
	case opBitOr:
		for i := range dst {
			dst[i] = a[i] | b[i]
		}
	case opBitXor:
		for i := range dst {
			dst[i] = a[i] ^ b[i]
		}
	}
}
