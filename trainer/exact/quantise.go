package exact

import (
	"fmt"
	"math"
)

// Add adds grad, the gradient of parameter i of one microbatch, to dst as integers round(grad *
// 2^exponent), with ties to even, and returns the peak of grad.
//
// If grad is not finite or too large for the scale, nothing is added, and the sums in dst must be
// discarded; Fits and NotFinite detect this by the peak. The other microbatches must still be
// computed, because the next scale depends on the peaks of all.
//
// A dst does not overflow as long as no more gradients are added to it than the step has
// microbatches. Add panics if the lengths differ.
func (s Scale) Add(i int, dst []int32, grad []float32) Peak {
	if len(dst) != len(grad) {
		panic(fmt.Sprintf("exact: add: lengths differ: %d gradients, %d sums", len(grad), len(dst)))
	}
	p := PeakOf(grad)
	if p != notFinite && !s.over(i, p) {
		add(dst, grad, power(s.exponent(i)))
	}
	return p
}

// Mean sets dst to sums / 2^exponent / divisor for parameter i, computed in float64 and rounded
// to float32. The result is the same on every machine. It is infinite only if gradients were at
// the very end of float32's range. Mean panics if the lengths differ.
func (s Scale) Mean(i int, dst []float32, sums []int32, divisor float64) {
	if len(dst) != len(sums) {
		panic(fmt.Sprintf("exact: mean: lengths differ: %d sums, %d results", len(sums), len(dst)))
	}
	unit := power(-s.exponent(i)) / divisor
	for j, v := range sums {
		dst[j] = float32(float64(v) * unit)
	}
}

// PeakOf returns the peak of v. Without the sign bit, float32 bit patterns are ordered like the
// magnitudes, with infinities and NaN at the top.
func PeakOf(v []float32) Peak {
	// Four maxima are independent, so the processor can overlap the comparisons.
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

// round is 1.5 * 2^52. A float64 of this size has a unit in the last place of 1, so adding a
// smaller number rounds that number to an integer, ties to even. The low bits of the sum then
// hold the integer in two's complement.
const round = 3 << 51

// add adds round(grad * scale) to dst. A float32 times a power of two is exact in float64, so a
// fused multiply-add gives the same result.
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
