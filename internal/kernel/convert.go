package kernel

import "github.com/elrun/elrun/dtype"

// FromFloat64 returns x as an element of T. It is meant for values that T holds exactly. Integers
// truncate towards zero; values out of their range are undefined. Float16 and BFloat16 are rounded
// twice, first to float32.
func FromFloat64[T dtype.Number](x float64) T {
	var z T
	switch p := any(&z).(type) {
	case *dtype.Float16:
		*p = dtype.ToFloat16(float32(x))
	case *dtype.BFloat16:
		*p = dtype.ToBFloat16(float32(x))
	default:
		// Float16 and BFloat16 are integer types to Go, so T(x) would be wrong for them; they are
		// handled above.
		z = T(x)
	}
	return z
}

// ToFloat64 returns the value of x. 64-bit integers beyond 2^53 are rounded.
func ToFloat64[T dtype.Number](x T) float64 {
	switch x := any(x).(type) {
	case dtype.Float16:
		return float64(x.Float32())
	case dtype.BFloat16:
		return float64(x.Float32())
	}
	return float64(x)
}
