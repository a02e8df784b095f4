package collective_test

import (
	"math/bits"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/ring"
)

// reduction is an operation under test, with inputs for which its results are exact, and a
// reference implementation.
type reduction[T collective.Number] struct {
	name    string
	ordered bool // it does not commute
	op      collective.Op[T]
	input   func(rank, index int) T
	fold    func(a, b T) T // reduces two elements, a from the lower ranks
	finish  func(T, int) T // final function for a result of that number of ranks, or nil
}

// integers returns the reductions of an integer type. Inputs cover the whole range of the
// type, so sums wrap; for types of 32 bits or more no two inputs are equal.
func integers[T collective.Integer]() []reduction[T] {
	wide := func(rank, index int) T { return T(int64(rank)*0x5deece66d*3 + int64(index)*0x2545f491 + 77) }
	truth := func(zero bool, index int) T {
		if zero {
			return 0
		}
		return T(1 + index%3)
	}
	asBit := func(b bool) T {
		if b {
			return 1
		}
		return 0
	}
	return []reduction[T]{
		{name: "sum", op: collective.Sum[T], input: wide, fold: func(a, b T) T { return a + b }},
		{name: "prod", op: collective.Prod[T], input: wide, fold: func(a, b T) T { return a * b }},
		{name: "min", op: collective.Min[T], input: wide, fold: func(a, b T) T { return min(a, b) }},
		{name: "max", op: collective.Max[T], input: wide, fold: func(a, b T) T { return max(a, b) }},
		{name: "average", op: collective.Average[T], input: wide, fold: func(a, b T) T { return a + b },
			finish: func(v T, n int) T { return v / T(n) }},
		{name: "and", op: collective.And[T],
			input: func(rank, index int) T { return truth((5*index+3*rank)%11 == 0, index) },
			fold:  func(a, b T) T { return asBit(a != 0 && b != 0) }},
		{name: "or", op: collective.Or[T],
			input: func(rank, index int) T { return truth((5*index+3*rank)%11 != 0, index) },
			fold:  func(a, b T) T { return asBit(a != 0 || b != 0) }},
		{name: "xor", op: collective.Xor[T],
			input: func(rank, index int) T { return truth((5*index+3*rank)%7 < 4, index) },
			fold:  func(a, b T) T { return asBit((a != 0) != (b != 0)) }},
		{name: "bitand", op: collective.BitAnd[T], fold: func(a, b T) T { return a & b },
			input: func(rank, index int) T { return wide(rank, index) | wide(rank+9, index+1) }},
		{name: "bitor", op: collective.BitOr[T], fold: func(a, b T) T { return a | b },
			input: func(rank, index int) T { return wide(rank, index) & wide(rank+9, index+1) }},
		{name: "bitxor", op: collective.BitXor[T], input: wide, fold: func(a, b T) T { return a ^ b }},
		user("join", false, wide, func(a, b T) T { return a + b + a*b }), // (1+a)(1+b)-1
		user("affine", true, func(rank, index int) T { return wide(rank, index) | 1<<(width[T]()) }, compose[T]),
		user("last", true, wide, func(_, b T) T { return b }),
	}
}

// user returns a reduction for a function of one element, as users define them.
func user[T collective.Number](name string, ordered bool, input func(rank, index int) T, fold func(a, b T) T) reduction[T] {
	op := collective.NewOp(name, !ordered, func(dst, a, b []T) {
		for i := range dst {
			dst[i] = fold(a[i], b[i])
		}
	})
	return reduction[T]{name: name, ordered: ordered, op: op, input: input, fold: fold}
}

// width returns half the number of bits of T.
func width[T collective.Number]() int { return kernel.Size[T]() * 4 }

// compose is associative and does not commute. Its elements are the maps x -> f*x + g
// modulo 2^width, with f in the upper half of the bits and g in the lower half; a is
// applied first.
func compose[T collective.Integer](a, b T) T {
	w := width[T]()
	mask := uint64(1)<<w - 1
	f1, g1 := uint64(a)>>w&mask, uint64(a)&mask
	f2, g2 := uint64(b)>>w&mask, uint64(b)&mask
	return T(f1*f2&mask<<w | (g1*f2+g2)&mask)
}

// real describes how the tests compute with a floating-point type: in float64, which
// represents every element, every product and, for numbers up to limit, every sum of nine
// exactly.
type real[T collective.Number] struct {
	from  func(float64) T
	to    func(T) float64
	limit int
}

func float32s() real[float32] {
	return real[float32]{func(x float64) float32 { return float32(x) }, func(v float32) float64 { return float64(v) }, 1_864_000}
}

func float64s() real[float64] {
	same := func(x float64) float64 { return x }
	return real[float64]{same, same, 1_000_000_000_000_007}
}

func float16s() real[ring.Float16] {
	return real[ring.Float16]{func(x float64) ring.Float16 { return dtype.ToFloat16(float32(x)) },
		func(v ring.Float16) float64 { return float64(v.Float32()) }, 227}
}

func bfloat16s() real[ring.BFloat16] {
	return real[ring.BFloat16]{func(x float64) ring.BFloat16 { return dtype.ToBFloat16(float32(x)) },
		func(v ring.BFloat16) float64 { return float64(v.Float32()) }, 28}
}

// floats returns the reductions of a floating-point type.
func floats[T collective.Number](r real[T]) []reduction[T] {
	// The inputs run from -limit to limit, and start again at -limit after a length that differs
	// between types.
	wide := func(rank, index int) T {
		period := 2*r.limit + 1
		return r.from(float64((rank*(period/9|1)+index)%period - r.limit))
	}
	lift := func(f func(a, b float64) float64) func(a, b T) T {
		return func(a, b T) T { return r.from(f(r.to(a), r.to(b))) }
	}
	choose := func(one func(rank, index int) bool) func(rank, index int) T {
		return func(rank, index int) T { return r.from(asFloat(one(rank, index)) * float64(1+index%3)) }
	}
	return []reduction[T]{
		{name: "sum", op: collective.Sum[T], input: wide, fold: lift(func(a, b float64) float64 { return a + b })},
		{name: "prod", op: collective.Prod[T], input: func(rank, index int) T { return r.from(power(rank + 3*index)) },
			fold: lift(func(a, b float64) float64 { return a * b })},
		{name: "min", op: collective.Min[T], input: wide, fold: lift(func(a, b float64) float64 { return min(a, b) })},
		{name: "max", op: collective.Max[T], input: wide, fold: lift(func(a, b float64) float64 { return max(a, b) })},
		{name: "average", op: collective.Average[T], input: wide, fold: lift(func(a, b float64) float64 { return a + b }),
			finish: func(v T, n int) T { return r.from(r.to(v) / float64(n)) }},
		{name: "and", op: collective.And[T], input: choose(func(rank, index int) bool { return (5*index+3*rank)%11 != 0 }),
			fold: lift(func(a, b float64) float64 { return asFloat(a != 0 && b != 0) })},
		{name: "or", op: collective.Or[T], input: choose(func(rank, index int) bool { return (5*index+3*rank)%11 == 0 }),
			fold: lift(func(a, b float64) float64 { return asFloat(a != 0 || b != 0) })},
		{name: "xor", op: collective.Xor[T], input: choose(func(rank, index int) bool { return (5*index+3*rank)%7 < 4 }),
			fold: lift(func(a, b float64) float64 { return asFloat((a != 0) != (b != 0)) })},
		user("larger", false, wide, lift(func(a, b float64) float64 { return max(a, b) })),
		user("last", true, wide, func(_, b T) T { return b }),
	}
}

func asFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// power returns plus or minus a half, one or two: products of nine such numbers are exact
// in every type.
func power(k int) float64 {
	x := []float64{0.5, 1, 2, 1, -2, -0.5, 1}[k%7]
	if bits.OnesCount(uint(k))%2 == 1 {
		return -x
	}
	return x
}
