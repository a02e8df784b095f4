package kernel

import "github.com/elrun/elrun/dtype"

// The loops: one per operation, over vectors whose lengths the caller has
// compared. Each begins by cutting a and b to the length of dst, from which the
// compiler sees that no index is out of bounds.

// native lists the types that Go computes with as elrun means it.
type native interface {
	dtype.Integer | float32 | float64
}

func add[T dtype.Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func mul[T dtype.Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

// lesser relies on Go's min, which treats NaN and -0 as Min says.
func lesser[T dtype.Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = min(a[i], b[i])
	}
}

func greater[T dtype.Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = max(a[i], b[i])
	}
}

func and[T dtype.Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = truth[T](a[i] != 0 && b[i] != 0)
	}
}

func or[T dtype.Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = truth[T](a[i] != 0 || b[i] != 0)
	}
}

func xor[T dtype.Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = truth[T]((a[i] != 0) != (b[i] != 0))
	}
}

func truth[T dtype.Number](b bool) T {
	if b {
		return 1
	}
	return 0
}

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

// operation names a loop. A switch is used rather than a function value so that the
// blocks of foldHalf can stay on the stack.
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

// loop carries out op for types that are no halves.
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

// bitLoop carries out the operations on bits, which floats do not have in Go.
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
