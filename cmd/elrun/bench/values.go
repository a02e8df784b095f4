package bench

import (
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// values computes inputs and expected results; see the package comment.
type values[T dtype.Number] struct {
	op     string      // the operation, as in Config.Op
	n      int         // ranks
	period int         // the prime P of the package comment
	input  []T         // indexed by (7r + 3i + 5t) mod period
	tables map[int][]T // cache of the results of reduced, by number of ranks
}

// span describes a part of a result: elements [first, end) of the destination are the input of
// one rank, or the reduction of several ranks' inputs.
type span struct {
	first, end int
	offset     int // index of the first element in the source vectors
	from       int // source rank, if not a reduction
	ranks      int // reduction over the ranks [0, ranks); 0 if not a reduction
}

// newValues returns the inputs and results of op over n ranks.
func newValues[T dtype.Number](op string, n int) values[T] {
	v := values[T]{op: op, n: n, period: period(dtype.TypeOf[T]()), tables: map[int][]T{}}
	v.input = make([]T, v.period)
	for x := range v.input {
		v.input[x] = fromInt[T](v.integer(x))
	}
	return v
}

// period returns the prime P for a type: in floating-point types a sum of 16 smaller numbers is
// exact, in integer types it may wrap around, as the expected sum does. bfloat16 has 8
// significant bits and float16 has 11.
func period(t dtype.Type) int {
	switch t {
	case dtype.BF16:
		return 13
	case dtype.Int8, dtype.Uint8, dtype.F16:
		return 127
	}
	return 1021
}

// integer returns the input at x = 7r + 3i + 5t as an integer.
func (v *values[T]) integer(x int) int64 {
	x %= v.period
	if v.op == "prod" {
		return int64(1 + x%2)
	}
	return int64(x)
}

// start returns x mod period for element i of rank r in iteration t.
func (v *values[T]) start(r, i, t int) int {
	return (7*r + 3*(i%v.period) + 5*(t%v.period)) % v.period
}

// fill sets dst to the inputs that begin at x.
func (v *values[T]) fill(dst []T, x int) {
	for i := range dst {
		dst[i] = v.input[x]
		// Successive elements differ by 3 in x. One subtraction replaces the division of a
		// modulo, which would dominate the check of large vectors.
		if x += 3; x >= v.period {
			x -= v.period
		}
	}
}

// poison sets dst to a value that is rarely a result, so that check counts elements that the call
// did not write.
func (v *values[T]) poison(dst []T) {
	bad := fromInt[T](113)
	for i := range dst {
		dst[i] = bad
	}
}

// check returns the number of elements of got that differ from the expected part s in iteration
// t.
func (v *values[T]) check(got []T, s span, t int) (wrong int64) {
	table := v.input
	x := v.start(s.from, s.offset, t)
	if s.ranks > 0 {
		table = v.reduced(s.ranks)
		x = v.start(0, s.offset, t)
	}
	for _, g := range got {
		if g != table[x] {
			wrong++
		}
		if x += 3; x >= v.period {
			x -= v.period
		}
	}
	return wrong
}

// reduced returns the results of the reduction over the ranks [0, ranks), indexed by 3i + 5t mod
// period.
func (v *values[T]) reduced(ranks int) []T {
	if table, ok := v.tables[ranks]; ok {
		return table
	}
	table := make([]T, v.period)
	v.tables[ranks] = table
	for x := range table {
		acc := v.integer(x)
		for r := 1; r < ranks; r++ {
			// The input of rank r at x is the input of rank 0 at x + 7r (start).
			acc = reduceInt(v.op, acc, v.integer(x+7*r))
		}
		table[x] = fromInt[T](acc)
		// An average divides once, after the sum, as package collective does.
		if v.op == "average" {
			table[x] = divide(table[x], ranks)
		}
	}
	return table
}

// reduceInt computes the operation on integers. The results need not wrap around before the final
// conversion to a smaller type: inputs are never negative, and the low bits of a result depend only
// on the low bits of the inputs.
func reduceInt(op string, a, b int64) int64 {
	switch op {
	case "sum", "average":
		return a + b
	case "prod":
		return a * b
	case "min":
		return min(a, b)
	case "max":
		return max(a, b)
	case "and":
		return truth(a != 0 && b != 0)
	case "or":
		return truth(a != 0 || b != 0)
	case "xor":
		return truth((a != 0) != (b != 0))
	case "bitand":
		return a & b
	case "bitor":
		return a | b
	}
	return a ^ b
}

// truth returns 1 for true and 0 for false.
func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// fromInt converts x to T, and wraps around if T is a smaller integer type.
func fromInt[T dtype.Number](x int64) T {
	var z T
	switch p := any(&z).(type) {
	case *int8:
		*p = int8(x)
	case *int32:
		*p = int32(x)
	case *int64:
		*p = x
	case *uint8:
		*p = uint8(x)
	case *uint32:
		*p = uint32(x)
	case *uint64:
		*p = uint64(x)
	default:
		z = kernel.FromFloat64[T](float64(x))
	}
	return z
}

// divide returns x / n in T: truncated towards zero for integers, rounded once for floating-point
// types.
func divide[T dtype.Number](x T, n int) T {
	switch v := any(x).(type) {
	case int64:
		return fromInt[T](v / int64(n))
	case uint64:
		return fromInt[T](int64(v / uint64(n)))
	case int8, int32, uint8, uint32:
		return fromInt[T](int64(kernel.ToFloat64(x)) / int64(n))
	case float64:
		return kernel.FromFloat64[T](v / float64(n))
	}
	return kernel.FromFloat64[T](float64(float32(kernel.ToFloat64(x)) / float32(n)))
}
