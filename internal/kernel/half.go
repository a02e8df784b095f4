package kernel

import "github.com/elrun/elrun/dtype"

// block is the number of float16 or bfloat16 elements that are converted at a time. Two blocks of
// float32 are on the stack; they fit the first-level cache.
const block = 256

// foldHalf reduces vectors of Float16 or BFloat16 in float32, block by block, and rounds each
// result once.
func foldHalf[T dtype.Number](op operation, dst, a, b []T) {
	// The arrays stay on the stack, because loop is called directly and not by a function value.
	var x, y [block]float32
	for len(dst) > 0 {
		n := min(block, len(dst))
		widen(x[:n], a[:n])
		widen(y[:n], b[:n])
		loop(op, x[:n], x[:n], y[:n])
		narrow(dst[:n], x[:n])
		dst, a, b = dst[n:], a[n:], b[n:]
	}
}

// divideHalf divides v by n in float32 and rounds each quotient once.
func divideHalf[T dtype.Number](v []T, n int) {
	var x [block]float32
	for len(v) > 0 {
		k := min(block, len(v))
		widen(x[:k], v[:k])
		divide(x[:k], float32(n))
		narrow(v[:k], x[:k])
		v = v[k:]
	}
}

// widen converts src, a slice of Float16 or BFloat16, to float32. dst has the same length. A type
// switch on the slice, once per block, is cheaper than one per element.
func widen[T dtype.Number](dst []float32, src []T) {
	switch src := any(src).(type) {
	case []dtype.Float16:
		for i, h := range src[:len(dst)] {
			dst[i] = h.Float32()
		}
	case []dtype.BFloat16:
		for i, h := range src[:len(dst)] {
			dst[i] = h.Float32()
		}
	}
}

// narrow is the inverse of widen. It rounds to nearest, ties to even.
func narrow[T dtype.Number](dst []T, src []float32) {
	switch dst := any(dst).(type) {
	case []dtype.Float16:
		for i, f := range src[:len(dst)] {
			dst[i] = dtype.ToFloat16(f)
		}
	case []dtype.BFloat16:
		for i, f := range src[:len(dst)] {
			dst[i] = dtype.ToBFloat16(f)
		}
	}
}
