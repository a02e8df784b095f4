package compress

import (
	"encoding/binary"
	"math"

	"github.com/elrun/elrun/dtype"
)

// block is how many elements have one scale: few enough that a large value spoils the
// precision of no more than its neighbours, and many enough that scales cost nothing.
const block = 1024

// blocks returns how many blocks n elements have.
func blocks(n int) int { return (n + block - 1) / block }

// BFloat16 is the coding in the upper halves of float32: the range stays, and 8 bits of
// each value.
//
// The code of n elements: n times 2 bytes.
type BFloat16 struct{}

// Name returns "bf16".
func (BFloat16) Name() string { return "bf16" }

// Sparse returns false.
func (BFloat16) Sparse() bool { return false }

// Size returns 2n.
func (BFloat16) Size(n int) int { return 2 * n }

// Encode implements collective.Coding.
func (BFloat16) Encode(code []byte, v []float32) {
	for i, x := range v {
		h := dtype.ToBFloat16(x)
		binary.LittleEndian.PutUint16(code[2*i:], uint16(h))
		v[i] = x - h.Float32()
	}
}

// Add implements collective.Coding. All bytes make sense.
func (BFloat16) Add(dst []float32, code []byte) error {
	for i := range dst {
		dst[i] += dtype.BFloat16(binary.LittleEndian.Uint16(code[2*i:])).Float32()
	}
	return nil
}

// Float16 is the coding in IEEE binary16. Its range is small, so each block is multiplied
// by the power of two that puts its largest value just below 2^15: nothing overflows, and
// values down to 2^-29 of the largest keep 11 bits.
//
// The code of n elements: a byte for each block, the exponent of its power as an int8, and
// n times 2 bytes.
type Float16 struct{}

// Name returns "fp16".
func (Float16) Name() string { return "fp16" }

// Sparse returns false.
func (Float16) Sparse() bool { return false }

// Size returns 2n and a byte for each block.
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

// Add implements collective.Coding. All bytes make sense.
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

// exponentOf returns e such that m * 2^-e is just below 2^15, as far as 2^e and 2^-e are
// normal numbers; 0 for 0 and for infinity.
func exponentOf(m float32) int {
	if m == 0 || math.IsInf(float64(m), 0) {
		return 0
	}
	_, x := math.Frexp(float64(m))
	return min(max(x-15, -126), 126)
}

// power returns 2^e for the exponents of exponentOf, and others as near as can be.
func power(e int) float32 { return float32(math.Ldexp(1, e)) }

// largest returns the largest magnitude in v. It passes over what is no number.
func largest(v []float32) float32 {
	m := float32(0)
	for _, x := range v {
		m = max32(m, math.Float32frombits(math.Float32bits(x)&^(1<<31)))
	}
	return m
}

// max32 is max without its care for NaN, of which a loop over gradients would feel the
// price.
func max32(m, x float32) float32 {
	if x > m {
		return x
	}
	return m
}
