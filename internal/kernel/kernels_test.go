package kernel

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/dtype"
)

// kernel consists of an exported kernel, the same kernel at a given level, and a twin: a slow
// reference implementation for single values.
type kernel[T dtype.Number] struct {
	name string
	fold func(dst, a, b []T)
	at   func(l level, dst, a, b []T)
	twin func(a, b T) T
}

// String returns the name of the level.
func (l level) String() string {
	switch l {
	case avx2:
		return "avx2"
	case avx512:
		return "avx512"
	}
	return "go"
}

// levels returns the levels that this machine can run.
func levels() []level {
	var all []level
	for l := plain; l <= levelHere(); l++ {
		all = append(all, l)
	}
	return all
}

// at returns an operation at a chosen level.
func at[T dtype.Number](op operation) func(l level, dst, a, b []T) {
	return func(l level, dst, a, b []T) { fold(l, op, dst, a, b) }
}

// bitsAt is like at, for the bitwise operations.
func bitsAt[T dtype.Integer](op operation) func(l level, dst, a, b []T) {
	return func(l level, dst, a, b []T) { foldBits(l, op, dst, a, b) }
}

// boolean converts a bool to 1 or 0.
func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// viaFloat returns a twin that computes in float64. It is exact for sums and products of float16, bfloat16 and small integers,
// and rounds correctly for float32. For 16-bit types FromFloat64 rounds to float32 first. This does not change the result,
// because float32 has more than twice the digits plus two (S. A. Figueroa, "When is double rounding innocuous?", 1995).
func viaFloat[T dtype.Number](f func(a, b float64) float64) func(a, b T) T {
	return func(a, b T) T { return FromFloat64[T](f(ToFloat64(a), ToFloat64(b))) }
}

// orNaN returns a function that returns NaN if either operand is NaN, and otherwise the result of f. math.Min and math.Max
// would return an infinity.
func orNaN(f func(a, b float64) float64) func(a, b float64) float64 {
	return func(a, b float64) float64 {
		if a != a || b != b {
			return math.NaN()
		}
		return f(a, b)
	}
}

// logicKernels returns the kernels whose results fit float64 exactly, for all types.
func logicKernels[T dtype.Number]() []kernel[T] {
	return []kernel[T]{
		{"and", And[T], at[T](opAnd), viaFloat[T](func(a, b float64) float64 { return boolean(a != 0 && b != 0) })},
		{"or", Or[T], at[T](opOr), viaFloat[T](func(a, b float64) float64 { return boolean(a != 0 || b != 0) })},
		{"xor", Xor[T], at[T](opXor), viaFloat[T](func(a, b float64) float64 { return boolean((a != 0) != (b != 0)) })},
	}
}

// floatKernels returns the kernels of the floating-point types, with twins in float64.
func floatKernels[T dtype.Number]() []kernel[T] {
	return append(logicKernels[T](), []kernel[T]{
		{"add", Add[T], at[T](opAdd), viaFloat[T](func(a, b float64) float64 { return a + b })},
		{"mul", Mul[T], at[T](opMul), viaFloat[T](func(a, b float64) float64 { return a * b })},
		{"min", Min[T], at[T](opMin), viaFloat[T](orNaN(math.Min))},
		{"max", Max[T], at[T](opMax), viaFloat[T](orNaN(math.Max))},
	}...)
}

// integerKernels returns the kernels of an integer type.
func integerKernels[T dtype.Integer]() []kernel[T] {
	return append(logicKernels[T](), []kernel[T]{
		// The low bits of a sum or product are the same for signed and unsigned integers.
		{"add", Add[T], at[T](opAdd), func(a, b T) T { return T(uint64(a) + uint64(b)) }},
		{"mul", Mul[T], at[T](opMul), func(a, b T) T { return T(uint64(a) * uint64(b)) }},
		{"min", Min[T], at[T](opMin), func(a, b T) T {
			if b < a {
				return b
			}
			return a
		}},
		{"max", Max[T], at[T](opMax), func(a, b T) T {
			if b > a {
				return b
			}
			return a
		}},
		{"bitand", BitAnd[T], bitsAt[T](opBitAnd), func(a, b T) T { return ^(^a | ^b) }},
		{"bitor", BitOr[T], bitsAt[T](opBitOr), func(a, b T) T { return a + b - a&b }},
		{"bitxor", BitXor[T], bitsAt[T](opBitXor), func(a, b T) T { return a&^b + b&^a }},
	}...)
}

// equal reports whether two elements have the same bits or are both NaN.
func equal[T dtype.Number](a, b T) bool {
	x, y := ToFloat64(a), ToFloat64(b)
	if x != x || y != y {
		return x != x && y != y
	}
	return a == b && math.Signbit(x) == math.Signbit(y)
}

// edges returns values at the limits of T, which random vectors seldom contain.
func edges[T dtype.Number]() []T {
	var edges []T
	for _, x := range []float64{0, 1, 2, 3, 100, 127} {
		edges = append(edges, FromFloat64[T](x))
	}
	switch e := any(&edges).(type) {
	case *[]int8:
		*e = append(*e, -1, math.MinInt8)
	case *[]int32:
		*e = append(*e, -1, math.MinInt32, math.MaxInt32)
	case *[]int64:
		*e = append(*e, -1, math.MinInt64, math.MaxInt64)
	case *[]uint64:
		*e = append(*e, math.MaxUint64, 1<<63)
	default:
		for _, x := range []float64{math.Copysign(0, -1), -1, 0.1, -0.1, math.NaN(), math.Inf(1), math.Inf(-1), 65504, 0x1p-24, 1e38} {
			if dtype.TypeOf[T]() >= dtype.F32 {
				edges = append(edges, FromFloat64[T](x))
			}
		}
	}
	return edges
}

// elements draws n random bit patterns and edges of T.
func elements[T dtype.Number](n int) *rapid.Generator[[]T] {
	return rapid.Custom(func(t *rapid.T) []T {
		e := edges[T]()
		v := make([]T, n)
		bytes := Bytes(v)
		copy(bytes, rapid.SliceOfN(rapid.Byte(), len(bytes), len(bytes)).Draw(t, "bytes"))
		for i := range v {
			if k := rapid.IntRange(0, 2*len(e)).Draw(t, "edge"); k < len(e) {
				v[i] = e[k]
			}
		}
		return v
	})
}

// testKernel compares a kernel with its twin on all pairs of edges and on random vectors.
func testKernel[T dtype.Number](t *testing.T, k kernel[T]) {
	t.Run(k.name, func(t *testing.T) {
		e := edges[T]()
		var a, b []T
		for _, x := range e { // every pair of edges
			for _, y := range e {
				a, b = append(a, x), append(b, y)
			}
		}
		k.check(t, a, b)
		rapid.Check(t, func(t *rapid.T) {
			n := rapid.SampledFrom([]int{0, 1, 2, 3, 7, 8, 33, 130}).Draw(t, "n")
			k.check(t, elements[T](n).Draw(t, "a"), elements[T](n).Draw(t, "b"))
		})
	})
}

// check compares the kernel, and the kernel at each level, with the twin.
func (k kernel[T]) check(t rapid.TB, a, b []T) {
	t.Helper()
	k.checkFold(t, "as exported", k.fold, a, b)
	for _, l := range levels() {
		k.checkFold(t, l.String(), func(dst, a, b []T) { k.at(l, dst, a, b) }, a, b)
	}
}

// checkFold reduces into a separate slice, into a, and into b.
func (k kernel[T]) checkFold(t rapid.TB, how string, fold func(dst, a, b []T), a, b []T) {
	t.Helper()
	dst, inA, inB := make([]T, len(a)), append([]T(nil), a...), append([]T(nil), b...)
	fold(dst, a, b)
	fold(inA, inA, b)
	fold(inB, a, inB)
	for i := range dst {
		want := k.twin(a[i], b[i])
		if !equal(dst[i], want) || !equal(inA[i], want) || !equal(inB[i], want) {
			t.Fatalf("%s %v, %s: %v and %v give %v, in place %v and %v, want %v", k.name, dtype.TypeOf[T](), how,
				ToFloat64(a[i]), ToFloat64(b[i]), ToFloat64(dst[i]), ToFloat64(inA[i]), ToFloat64(inB[i]), ToFloat64(want))
		}
	}
}

// testIntegers tests all kernels of an integer type.
func testIntegers[T dtype.Integer](t *testing.T) {
	t.Run(dtype.TypeOf[T]().String(), func(t *testing.T) {
		for _, k := range integerKernels[T]() {
			testKernel(t, k)
		}
		testLengths[T](t)
	})
}

// testFloats tests all kernels of a floating-point type.
func testFloats[T dtype.Number](t *testing.T) {
	t.Run(dtype.TypeOf[T]().String(), func(t *testing.T) {
		for _, k := range floatKernels[T]() {
			testKernel(t, k)
		}
		testLengths[T](t)
	})
}

// Every kernel of every type has the results of its twin at every level.
func TestKernels(t *testing.T) {
	testIntegers[int](t)
	testIntegers[int8](t)
	testIntegers[int32](t)
	testIntegers[int64](t)
	testIntegers[uint8](t)
	testIntegers[uint32](t)
	testIntegers[uint64](t)
	testFloats[float32](t)
	testFloats[float64](t)
	testFloats[dtype.Float16](t)
	testFloats[dtype.BFloat16](t)
}

// testLengths checks lengths around the block size, because 16-bit floats are reduced in blocks.
func testLengths[T dtype.Number](t *testing.T) {
	one := FromFloat64[T](1)
	for _, n := range []int{block - 1, block, block + 1, 3*block + 7} {
		v := make([]T, n+1)
		for i := range v {
			v[i] = one
		}
		Add(v[:n], v[:n], v[:n])
		DivideBy(v[:n], 2)
		Add(v[:n], v[:n], v[:n])
		for i, x := range v[:n] {
			if x != FromFloat64[T](2) {
				t.Fatalf("length %d: element %d is %v, want 2", n, i, ToFloat64(x))
			}
		}
		if v[n] != one {
			t.Fatalf("length %d: the element after the end was written", n)
		}
	}
}

// Kernels panic if the lengths differ. DivideBy panics if the divisor is not positive.
func TestLengthsDiffer(t *testing.T) {
	v := make([]float32, 3)
	w := make([]dtype.Float16, 3)
	i := make([]int32, 3)
	for k, f := range []func(){
		func() { Add(v, v[:2], v) },
		func() { Add(v[:2], v, v) },
		func() { Mul(v, v, v[:2]) },
		func() { Min(w, w, w[:2]) },
		func() { Max(w[:2], w, w) },
		func() { And(v[:2], v, v) },
		func() { Or(v, v[:2], v) },
		func() { Xor(v, v[:2], v) },
		func() { BitAnd(i, i[:2], i) },
		func() { BitOr(i[:2], i, i) },
		func() { BitXor(i, i, i[:2]) },
		func() { DivideBy(v, 0) },
		func() { DivideBy(i, -1) },
	} {
		if message := panicOf(f); message == "" {
			t.Errorf("case %d: no panic", k)
		}
	}
}

// panicOf returns the message with which f panics, or "" if it does not panic.
func panicOf(f func()) (message string) {
	defer func() {
		if p := recover(); p != nil {
			message = fmt.Sprint(p)
		}
	}()
	f()
	return ""
}

// Integer quotients truncate towards zero, also for divisors that the type cannot hold.
func TestDivideBy(t *testing.T) {
	testDivide(t, []int8{7, -7, -128, 127}, 2, []int8{3, -3, -64, 63})
	testDivide(t, []int8{7, -7, -128, 127}, 128, []int8{0, 0, -1, 0})
	testDivide(t, []int8{7, -7, -128, 127}, 257, []int8{0, 0, 0, 0}) // as an int8, 257 would be 1
	testDivide(t, []uint8{255, 254, 3}, 255, []uint8{1, 0, 0})
	testDivide(t, []int32{math.MinInt32, 9}, 3, []int32{-715827882, 3})
	testDivide(t, []uint32{math.MaxUint32, 9}, 2, []uint32{math.MaxInt32, 4})
	testDivide(t, []int64{math.MinInt64, math.MaxInt64}, 2, []int64{-1 << 62, 1<<62 - 1})
	testDivide(t, []int{-7, 7}, 2, []int{-3, 3})
	testDivide(t, []uint64{math.MaxUint64, 1}, 2, []uint64{1<<63 - 1, 0})
	testDivide(t, []float32{1, -2, 0}, 3, []float32{1.0 / 3, -2.0 / 3, 0})
	testDivide(t, []float64{1, -2}, 3, []float64{1.0 / 3, -2.0 / 3})
	testDivide(t, []dtype.Float16{dtype.ToFloat16(1)}, 3, []dtype.Float16{dtype.ToFloat16(1.0 / 3)})
	testDivide(t, []dtype.BFloat16{dtype.ToBFloat16(1)}, 3, []dtype.BFloat16{dtype.ToBFloat16(1.0 / 3)})
}

// testDivide checks the quotients of one vector.
func testDivide[T dtype.Number](t *testing.T, v []T, n int, want []T) {
	t.Helper()
	got := append([]T(nil), v...)
	DivideBy(got, n)
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%v: %v / %d is %v, want %v", dtype.TypeOf[T](), v[i], n, got[i], want[i])
		}
	}
}
