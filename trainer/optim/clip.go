package optim

import "math"

// Norm returns the Euclidean norm of the concatenation of all vectors. It sums in float64 in a
// fixed order, so the result is the same on every machine. It is NaN or infinite if an element is
// NaN or infinite.
func Norm(vectors [][]float32) float64 {
	total := 0.0
	for _, v := range vectors {
		// Four partial sums let the processor overlap the additions; their order is fixed.
		var s [4]float64
		for len(v) >= 4 {
			a, b, c, d := float64(v[0]), float64(v[1]), float64(v[2]), float64(v[3])
			// The conversions prevent fused multiply-add, which rounds differently on some
			// processors.
			s[0] += float64(a * a)
			s[1] += float64(b * b)
			s[2] += float64(c * c)
			s[3] += float64(d * d)
			v = v[4:]
		}
		for _, x := range v {
			s[0] += float64(float64(x) * float64(x))
		}
		total += (s[0] + s[1]) + (s[2] + s[3])
	}
	return math.Sqrt(total)
}

// Clip scales all vectors in place by one factor so that their Norm is at most limit (gradient
// clipping by norm: Pascanu, Mikolov and Bengio 2013). It returns the Norm before the scaling. It
// changes nothing if the Norm is within the limit or not finite. It panics unless limit > 0.
func Clip(vectors [][]float32, limit float64) float64 {
	if !(limit > 0) {
		panic("optim: Clip needs a limit above zero")
	}
	norm := Norm(vectors)
	if !(norm > limit) || math.IsInf(norm, 1) {
		return norm
	}
	factor := float32(limit / norm)
	for _, v := range vectors {
		for i := range v {
			v[i] *= factor
		}
	}
	return norm
}
