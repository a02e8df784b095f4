package compress

import (
	"encoding/binary"
	"math"
)

// Int8 codes each value as one of 255 equidistant levels between minus and plus the largest
// magnitude of its block (linear quantization).
//
// The code of n elements: for each block the step size as a float32; then n int8.
type Int8 struct{}

// levels is the number of positive levels: the largest magnitude is levels times the step size.
const levels = 127

// Name returns "int8".
func (Int8) Name() string { return "int8" }

// Sparse returns false.
func (Int8) Sparse() bool { return false }

// Size returns the bytes of the code of n elements: n, and 4 for each block.
func (Int8) Size(n int) int { return 4*blocks(n) + n }

// Encode implements collective.Coding. Blocks of tiny values, whose step size would be zero or
// almost zero, are coded as zeros; the values stay in v as the coding error.
func (Int8) Encode(code []byte, v []float32) {
	scales, values := code[:4*blocks(len(v))], code[4*blocks(len(v)):]
	for ; len(v) > 0; scales = scales[4:] {
		part := v[:min(block, len(v))]
		scale, inverse := stepSize(part)
		binary.LittleEndian.PutUint32(scales, math.Float32bits(scale))
		for i, x := range part {
			q := roundInt8(x * inverse)
			values[i] = byte(q)
			part[i] = x - float32(float32(q)*scale)
		}
		v, values = v[len(part):], values[len(part):]
	}
}

// Add implements collective.Coding. It returns nil, because every code is valid.
func (Int8) Add(dst []float32, code []byte) error {
	scales, values := code[:4*blocks(len(dst))], code[4*blocks(len(dst)):]
	for ; len(dst) > 0; scales = scales[4:] {
		part := dst[:min(block, len(dst))]
		scale := math.Float32frombits(binary.LittleEndian.Uint32(scales))
		for i, q := range values[:len(part)] {
			// The conversion prevents fused multiply-add, which rounds once instead of twice.
			part[i] += float32(float32(int8(q)) * scale)
		}
		dst, values = dst[len(part):], values[len(part):]
	}
	return nil
}

// stepSize returns the step size of a block, and its inverse. Both are zero if the step size would
// be too small. If a value of the block is not finite, the results are NaN and zero, so that the
// whole block is decoded to NaN.
func stepSize(v []float32) (scale, inverse float32) {
	// x-x is NaN for an infinity or a NaN, and 0 otherwise.
	spoiled := float32(0)
	for _, x := range v {
		spoiled += x - x
	}
	if spoiled != 0 {
		return float32(math.NaN()), 0
	}
	m := largest(v)
	scale, inverse = m/levels, levels/m
	if m < 0x1p-100 {
		return 0, 0
	}
	return scale, inverse
}

// roundInt8 rounds x to the nearest integer, ties to even. The magnitude of x must not be much
// larger than levels. Then the sum of x and magic has no bits for a fraction, and the low bits of
// the sum are the integer. This is faster than math.RoundToEven. The result for NaN is arbitrary.
func roundInt8(x float32) int8 {
	const magic = 3 << 22
	q := int32(math.Float32bits(x+magic)) - int32(math.Float32bits(magic))
	return int8(min(max(q, -levels), levels))
}
