package raw

import "fmt"

// The exported kernels check their lengths, set the two half types apart and call
// one loop. Float16 and BFloat16 are integers to Go, so the loops below must
// never see them: they go through float32 (half.go).

// Add sets dst[i] = a[i] + b[i]. Integers wrap. dst may be a or b.
func Add[T Number](dst, a, b []T) {
	checkLengths(len(dst), len(a), len(b))
	if isHalf[T]() {
		foldHalf(opAdd, dst, a, b)
		return
	}
	add(dst, a, b)
}

// Mul sets dst[i] = a[i] * b[i]. Integers wrap. dst may be a or b.
func Mul[T Number](dst, a, b []T) {
	checkLengths(len(dst), len(a), len(b))
	if isHalf[T]() {
		foldHalf(opMul, dst, a, b)
		return
	}
	mul(dst, a, b)
}

// Min sets dst[i] to the lesser of a[i] and b[i]: NaN if either is NaN; -0 is
// less than 0. dst may be a or b.
func Min[T Number](dst, a, b []T) {
	checkLengths(len(dst), len(a), len(b))
	if isHalf[T]() {
		foldHalf(opMin, dst, a, b)
		return
	}
	lesser(dst, a, b)
}

// Max sets dst[i] to the greater of a[i] and b[i]: NaN if either is NaN; 0 is
// greater than -0. dst may be a or b.
func Max[T Number](dst, a, b []T) {
	checkLengths(len(dst), len(a), len(b))
	if isHalf[T]() {
		foldHalf(opMax, dst, a, b)
		return
	}
	greater(dst, a, b)
}

// And sets dst[i] to 1 where a[i] and b[i] are nonzero and to 0 elsewhere. NaN is
// nonzero. dst may be a or b.
func And[T Number](dst, a, b []T) {
	checkLengths(len(dst), len(a), len(b))
	if isHalf[T]() {
		foldHalf(opAnd, dst, a, b)
		return
	}
	and(dst, a, b)
}

// Or sets dst[i] to 1 where a[i] or b[i] is nonzero and to 0 elsewhere. NaN is
// nonzero. dst may be a or b.
func Or[T Number](dst, a, b []T) {
	checkLengths(len(dst), len(a), len(b))
	if isHalf[T]() {
		foldHalf(opOr, dst, a, b)
		return
	}
	or(dst, a, b)
}

// Xor sets dst[i] to 1 where exactly one of a[i] and b[i] is nonzero and to 0
// elsewhere. NaN is nonzero. dst may be a or b.
func Xor[T Number](dst, a, b []T) {
	checkLengths(len(dst), len(a), len(b))
	if isHalf[T]() {
		foldHalf(opXor, dst, a, b)
		return
	}
	xor(dst, a, b)
}

// BitAnd sets dst[i] = a[i] & b[i]. dst may be a or b.
func BitAnd[T Integer](dst, a, b []T) {
	checkLengths(len(dst), len(a), len(b))
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] & b[i]
	}
}

// BitOr sets dst[i] = a[i] | b[i]. dst may be a or b.
func BitOr[T Integer](dst, a, b []T) {
	checkLengths(len(dst), len(a), len(b))
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] | b[i]
	}
}

// BitXor sets dst[i] = a[i] ^ b[i]. dst may be a or b.
func BitXor[T Integer](dst, a, b []T) {
	checkLengths(len(dst), len(a), len(b))
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] ^ b[i]
	}
}

// DivideBy divides every element of v by n, which must be positive. Integers
// truncate towards zero, for any n: one that T cannot hold gives 0.
func DivideBy[T Number](v []T, n int) {
	if n <= 0 {
		panic(fmt.Sprintf("raw: DivideBy %d: not positive", n))
	}
	switch v := any(v).(type) {
	case []float32:
		divide(v, float32(n))
	case []float64:
		divide(v, float64(n))
	case []Float16:
		divideHalf(v, n)
	case []BFloat16:
		divideHalf(v, n)
	case []uint64:
		divide(v, uint64(n))
	case []int64:
		divide(v, int64(n))
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

// isHalf reports whether T is computed with in float32.
func isHalf[T Number]() bool {
	t := TypeOf[T]()
	return t == F16 || t == BF16
}

func checkLengths(dst, a, b int) {
	if dst != a || dst != b {
		panic(fmt.Sprintf("raw: lengths differ: dst %d, a %d, b %d", dst, a, b))
	}
}
