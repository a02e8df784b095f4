package exact

import (
	"fmt"
	"math"
)

// Add adds grad, the gradient of parameter i of one microbatch, to dst in integers,
// round(grad * 2^exponent) with ties to even, and returns its peak. Nothing is added
// if grad is not finite or too large for the scale: the peak says so to Fits and
// NotFinite, and dst is of no more use. The other microbatches must be computed all
// the same, as the next scale is made from the peaks of all.
//
// A dst takes at most as many gradients as the step has microbatches; then it cannot
// wrap. Add panics if the lengths differ.
func (s Scale) Add(i int, dst []int32, grad []float32) Peak {
	if len(dst) != len(grad) {
		panic(fmt.Sprintf("exact: add %d values to %d", len(grad), len(dst)))
	}
	p := PeakOf(grad)
	if p != notFinite && !s.over(i, p) {
		add(dst, grad, power(s.exponent(i)))
	}
	return p
}

// Mean sets dst to sums / 2^exponent / samples for parameter i, in float64 and then
// rounded to float32. It is the same on every machine. A result is infinite only if
// gradients were at the very end of float32's range. It panics if the lengths differ.
func (s Scale) Mean(i int, dst []float32, sums []int32, samples int64) {
	if len(dst) != len(sums) {
		panic(fmt.Sprintf("exact: mean of %d values into %d", len(sums), len(dst)))
	}
	unit := power(-s.exponent(i)) / float64(samples)
	for j, v := range sums {
		dst[j] = float32(float64(v) * unit)
	}
}

// PeakOf returns the peak of v. Bits of float32 without their sign are ordered as
// the magnitudes are, with infinities and NaN at the top.
func PeakOf(v []float32) Peak {
	// Four maxima let the processor overlap the comparisons.
	var m0, m1, m2, m3 uint32
	for len(v) >= 4 {
		m0 = max(m0, math.Float32bits(v[0])<<1)
		m1 = max(m1, math.Float32bits(v[1])<<1)
		m2 = max(m2, math.Float32bits(v[2])<<1)
		m3 = max(m3, math.Float32bits(v[3])<<1)
		v = v[4:]
	}
	for _, x := range v {
		m0 = max(m0, math.Float32bits(x)<<1)
	}
	return Peak(max(m0, m1, m2, m3) >> 24)
}

// FirstBad returns the index of the first element of v that is not finite, or -1.
func FirstBad(v []float32) int {
	for i, x := range v {
		if x-x != 0 {
			return i
		}
	}
	return -1
}

// round is 1.5 * 2^52: float64s of this size have a unit in the last place of 1, so
// that the sum of it and a smaller number is rounded to an integer, ties to even. The
// integer is then in the low bits, as two's complement.
const round = 3 << 51

// add adds round(grad * scale) to dst. A float32 times a power of two is exact in
// float64, so fusing the multiplication with the addition would change nothing.
func add(dst []int32, grad []float32, scale float64) {
	for len(grad) >= 4 && len(dst) >= 4 {
		dst[0] += int32(math.Float64bits(float64(grad[0])*scale + round))
		dst[1] += int32(math.Float64bits(float64(grad[1])*scale + round))
		dst[2] += int32(math.Float64bits(float64(grad[2])*scale + round))
		dst[3] += int32(math.Float64bits(float64(grad[3])*scale + round))
		grad, dst = grad[4:], dst[4:]
	}
	for i, g := range grad {
		dst[i] += int32(math.Float64bits(float64(g)*scale + round))
	}
}

// power returns 2^e for the exponents of normal float64s.
func power(e int) float64 { return math.Float64frombits(uint64(e+1023) << 52) }
