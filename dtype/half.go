package dtype

import "math"

// Float32 returns the value of h, which float32 represents exactly. NaNs keep
// their sign and payload and become quiet.
func (h Float16) Float32() float32 {
	sign := uint32(h&0x8000) << 16
	abs := uint32(h & 0x7fff)
	if abs >= 0x7c00 {
		return math.Float32frombits(sign | 0x7f800000 | quiet32(abs<<13&0x7fffff))
	}
	// As a float32, abs<<13 is too small by a factor of 2^112, because the exponent biases of the
	// two formats are 15 and 127. The product is exact, for subnormal numbers too.
	f := math.Float32frombits(abs<<13) * 0x1p112
	return math.Float32frombits(sign | math.Float32bits(f))
}

// ToFloat16 rounds f to the nearest float16, ties to even. Absolute values of 65520 or more become
// infinite. NaNs keep their sign and the upper part of the payload, and become quiet.
func ToFloat16(f float32) Float16 {
	bits := math.Float32bits(f)
	sign := Float16(bits >> 16 & 0x8000)
	abs := bits & 0x7fffffff
	switch {
	case abs > 0x7f800000:
		return sign | 0x7e00 | Float16(abs>>13&0x3ff)
	case abs >= 0x477ff000: // midpoint of the greatest finite float16 and 2^16
		return sign | 0x7c00
	case abs < 0x38800000: // below 2^-14: a subnormal float16
		// The unit in the last place of 0.5 as a float32 is 2^-24. A subnormal float16 has the same
		// unit. So the addition does the rounding and leaves the result in the lowest bits.
		sum := math.Float32frombits(abs) + 0.5
		return sign | Float16(math.Float32bits(sum)-math.Float32bits(0.5))
	}
	// Change the bias of the exponent, then round. A carry out of the fraction increases the
	// exponent, which is the right result.
	abs -= (127 - 15) << 23
	return sign | Float16((abs+0xfff+abs>>13&1)>>13)
}

// Float32 returns the value of b, which float32 represents exactly. NaNs keep
// their sign and payload and become quiet.
func (b BFloat16) Float32() float32 {
	bits := uint32(b) << 16
	if bits&0x7fffffff > 0x7f800000 {
		bits = quiet32(bits)
	}
	return math.Float32frombits(bits)
}

// ToBFloat16 rounds f to the nearest bfloat16, ties to even. NaNs keep their sign and the upper
// part of the payload, and become quiet.
func ToBFloat16(f float32) BFloat16 {
	bits := math.Float32bits(f)
	if bits&0x7fffffff > 0x7f800000 {
		return BFloat16(quiet32(bits) >> 16)
	}
	return BFloat16((bits + 0x7fff + bits>>16&1) >> 16)
}

// quiet32 sets the quiet bit of a NaN's fraction. It leaves the fraction of an infinity, which is
// 0, unchanged.
func quiet32(bits uint32) uint32 {
	if bits&0x7fffff == 0 {
		return bits
	}
	return bits | 0x400000
}
