package kernel

// Finite reports whether all elements of v are finite.
func Finite(v []float32) bool { return finite(levelHere(), v) }

// finite is Finite at a given level of instructions.
func finite(l level, v []float32) bool {
	rest, ok := finiteVectors(l, v)
	return ok && finiteLoop(rest)
}

// finiteLoop is Finite in Go. x-x is 0 for finite x and NaN otherwise, and a sum keeps a NaN, so there is
// no branch per element. The four sums are separate variables, which the compiler keeps in registers. It
// would keep the elements of an array in memory, which is several times slower.
func finiteLoop(v []float32) bool {
	var a, b, c, d float32
	for len(v) >= 4 {
		a += v[0] - v[0]
		b += v[1] - v[1]
		c += v[2] - v[2]
		d += v[3] - v[3]
		v = v[4:]
	}
	for _, x := range v {
		a += x - x
	}
	return a+b+c+d == 0
}

// Scale multiplies the elements of v by factor, and reports whether all products are finite.
func Scale(v []float32, factor float32) bool { return scale(levelHere(), v, factor) }

// scale is Scale at a given level of instructions.
func scale(l level, v []float32, factor float32) bool {
	rest, ok := scaleVectors(l, v, factor)
	return scaleLoop(rest, factor) && ok
}

// scaleLoop is Scale in Go.
func scaleLoop(v []float32, factor float32) bool {
	var sum float32
	for i := range v {
		v[i] *= factor
		sum += v[i] - v[i]
	}
	return sum == 0
}
