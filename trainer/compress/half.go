package compress

import (
	"encoding/binary"
	"math"

	"github.com/elrun/elrun/dtype"
)

// block is the number of elements that share a scale. A large value reduces the precision of its
// whole block, so blocks are short, but long enough that the bytes of the scales are negligible.
const block = 1024

// blocks returns the number of blocks of n elements.
func blocks(n int) int { return (n + block - 1) / block }

// BFloat16 codes each value as bfloat16, the upper half of a float32 after rounding: it keeps the
// range, and 8 significant bits.
//
// The code of n elements is 2n bytes: the values, little-endian.
type BFloat16 struct{}

// Name returns "bf16".
func (BFloat16) Name() string { return "bf16" }

// Sparse returns false.
func (BFloat16) Sparse() bool { return false }

// Size returns the bytes of the code of n elements: 2n.
func (BFloat16) Size(n int) int { return 2 * n }

// Encode implements collective.Coding.
func (BFloat16) Encode(code []byte, v []float32) {
	for i, x := range v {
		h := dtype.ToBFloat16(x)
		binary.LittleEndian.PutUint16(code[2*i:], uint16(h))
		// The coding error, which the caller adds to the next gradients.
		v[i] = x - h.Float32()
	}
}

// Add implements collective.Coding. It returns nil, because every code is valid.
func (BFloat16) Add(dst []float32, code []byte) error {
	for i := range dst {
		dst[i] += dtype.BFloat16(binary.LittleEndian.Uint16(code[2*i:])).Float32()
	}
	return nil
}

// Float16 codes each value as IEEE binary16. To fit the small range of binary16, each block is
// scaled by a power of two so that its largest magnitude is just below 2^15. So no value overflows,
// and values down to 2^-29 of the largest value keep 11 significant bits.
//
// The code of n elements: one int8 for each block, the exponent of its power of two; then 2n
// bytes, the values, little-endian.
type Float16 struct{}

// Name returns "fp16".
func (Float16) Name() string { return "fp16" }

// Sparse returns false.
func (Float16) Sparse() bool { return false }

// Size returns the bytes of the code of n elements: 2n, and one for each block.
func (Float16) Size(n int) int { return blocks(n) + 2*n }

// Encode implements collective.Coding.
func (Float16) Encode(code []byte, v []float32) {
	exponents, values := code[:blocks(len(v))], code[blocks(len(v)):]
	for b := range exponents {
		part := v[b*block : min((b+1)*block, len(v))]
		e := exponentOf(largest(part))
		exponents[b] = byte(int8(e))
		down, up := power(-e), power(e)
		for i, x := range part {
			h := dtype.ToFloat16(x * down)
			binary.LittleEndian.PutUint16(values[2*i:], uint16(h))
			part[i] = x - float32(h.Float32()*up)
		}
		values = values[2*len(part):]
	}
}

// Add implements collective.Coding. It returns nil, because every code is valid.
func (Float16) Add(dst []float32, code []byte) error {
	exponents, values := code[:blocks(len(dst))], code[blocks(len(dst)):]
	for b, e := range exponents {
		part := dst[b*block : min((b+1)*block, len(dst))]
		up := power(int(int8(e)))
		for i := range part {
			part[i] += float32(dtype.Float16(binary.LittleEndian.Uint16(values[2*i:])).Float32() * up)
		}
		values = values[2*len(part):]
	}
	return nil
}

// exponentOf returns e such that m * 2^-e is just below 2^15, limited so that 2^e and 2^-e are
// normal numbers. It returns 0 for 0 and for infinity, which are coded without scaling.
func exponentOf(m float32) int {
	if m == 0 || math.IsInf(float64(m), 0) {
		return 0
	}
	_, x := math.Frexp(float64(m))
	return min(max(x-15, -126), 126)
}

// power returns 2^e as a float32. For an e outside the range of exponentOf, as in a corrupt code,
// the result is the nearest float32.
func power(e int) float32 { return float32(math.Ldexp(1, e)) }

// largest returns the largest magnitude in v. It ignores NaN.
func largest(v []float32) float32 {
	m := float32(0)
	for _, x := range v {
		m = max32(m, math.Float32frombits(math.Float32bits(x)&^(1<<31)))
	}
	return m
}

// max32 is max without the handling of NaN, which slows down loops over gradients.
func max32(m, x float32) float32 {
	if x > m {
		return x
	}
	return m
}
