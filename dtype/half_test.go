package dtype

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// format describes a 16-bit floating-point type by its IEEE 754 parameters. The slow twins use it.
type format struct {
	fraction int // bits of the fraction
	least    int // exponent of the least normal number
	greatest int // exponent of the greatest number
}

// halfFormat and brainFormat are the parameters of float16 and bfloat16.
func halfFormat() format  { return format{fraction: 10, least: -14, greatest: 15} }
func brainFormat() format { return format{fraction: 7, least: -126, greatest: 127} }

// value is the slow twin of Float32. It accepts any bit pattern that is not NaN.
func (f format) value(h uint16) float64 {
	sign := 1 - 2*float64(h>>15)
	exponent := int(h&0x7fff) >> f.fraction
	fraction := float64(h&(1<<f.fraction-1)) / float64(int(1)<<f.fraction)
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, f.least)
	case f.greatest - f.least + 2:
		return sign * math.Inf(1)
	}
	return sign * math.Ldexp(1+fraction, exponent-1+f.least)
}

// round is the slow twin of ToFloat16 and ToBFloat16 for numbers: it returns the nearest multiple of the unit in the last place.
func (f format) round(x float64) float64 {
	if x == 0 || x != x || math.IsInf(x, 0) {
		return x
	}
	_, e := math.Frexp(x) // |x| is in [2^(e-1), 2^e)
	unit := math.Ldexp(1, max(e-1, f.least)-f.fraction)
	y := math.Copysign(math.RoundToEven(x/unit)*unit, x)
	if math.Abs(y) >= math.Ldexp(2, f.greatest) {
		return math.Copysign(math.Inf(1), x)
	}
	return y
}

// isNaN reports whether a bit pattern is a NaN: without the sign bit, the pattern of a NaN is
// greater than the pattern of infinity.
func (f format) isNaN(h uint16) bool { return h&0x7fff > uint16((1<<(15-f.fraction)-1)<<f.fraction) }

// half is one of the two types under test.
type half struct {
	name    string
	format  format
	widen   func(uint16) float32
	narrow  func(float32) uint16
	quieted uint16 // the quiet bit
}

// halves returns the types under test.
func halves() []half {
	return []half{
		{"float16", halfFormat(), func(h uint16) float32 { return Float16(h).Float32() },
			func(f float32) uint16 { return uint16(ToFloat16(f)) }, 0x200},
		{"bfloat16", brainFormat(), func(h uint16) float32 { return BFloat16(h).Float32() },
			func(f float32) uint16 { return uint16(ToBFloat16(f)) }, 0x40},
	}
}

// sameFloat reports whether two numbers have the same bits, so it distinguishes 0 and -0.
func sameFloat(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }

// Every bit pattern converts to its value, and the value converts back to the same bit pattern.
func TestHalfEveryPattern(t *testing.T) {
	for _, ty := range halves() {
		for i := range 1 << 16 {
			h := uint16(i)
			f := ty.widen(h)
			if ty.format.isNaN(h) {
				checkNaN(t, ty, h, f)
				continue
			}
			if want := ty.format.value(h); !sameFloat(float64(f), want) {
				t.Fatalf("%s %#04x is %v, want %v", ty.name, h, f, want)
			}
			if back := ty.narrow(f); back != h {
				t.Fatalf("%s %#04x comes back as %#04x", ty.name, h, back)
			}
		}
	}
}

// checkNaN checks that a NaN stays a NaN, becomes quiet, and keeps its sign and payload.
func checkNaN(t *testing.T, ty half, h uint16, f float32) {
	t.Helper()
	if bits := math.Float32bits(f); f == f || bits&0x400000 == 0 {
		t.Fatalf("%s NaN %#04x becomes %#08x, not a quiet NaN", ty.name, h, bits)
	}
	if back := ty.narrow(f); back != h|ty.quieted {
		t.Fatalf("%s NaN %#04x comes back as %#04x", ty.name, h, back)
	}
}

// checkRound compares the rounding of f with the slow twin.
func (h half) checkRound(t rapid.TB, f float32) {
	t.Helper()
	got, want := h.format.value(h.narrow(f)), h.format.round(float64(f))
	if !sameFloat(got, want) {
		t.Fatalf("%v (%#08x) to %s is %v, want %v", f, math.Float32bits(f), h.name, got, want)
	}
}

// The result of rounding changes only at the midpoints between neighbours. If the results at these
// points and at the float32 values next to them are right, all results are right.
func TestHalfEveryTie(t *testing.T) {
	infinity := float32(math.Inf(1))
	for _, ty := range halves() {
		for h := uint16(0); !ty.format.isNaN(h + 1); h++ {
			above := ty.format.value(h + 1)
			if math.IsInf(above, 1) {
				above = math.Ldexp(2, ty.format.greatest)
			}
			tie := float32((ty.format.value(h) + above) / 2)
			for _, f := range []float32{math.Nextafter32(tie, 0), tie, math.Nextafter32(tie, infinity)} {
				ty.checkRound(t, f)
				ty.checkRound(t, -f)
			}
		}
	}
}

// A random float32 bit pattern is rounded as the slow twin rounds it, and a NaN stays a NaN.
func TestHalfAnyFloat32(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.Uint32().Draw(t, "bits")
		f := math.Float32frombits(bits)
		for _, ty := range halves() {
			if f == f {
				ty.checkRound(t, f)
			} else if !ty.format.isNaN(ty.narrow(f)) {
				t.Fatalf("NaN %#08x to %s is a number", bits, ty.name)
			}
		}
	})
}

// Zeros, infinities, NaNs, ties and the greatest and least values have the bit patterns of the
// standard.
func TestHalfSpecialValues(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		f     float32
		half  Float16
		brain BFloat16
	}{
		{0, 0, 0},
		{float32(math.Copysign(0, -1)), 0x8000, 0x8000},
		{1, 0x3c00, 0x3f80},
		{-2, 0xc000, 0xc000},
		{65504, 0x7bff, 0x4780},     // the greatest finite float16
		{65519.996, 0x7bff, 0x4780}, // just below the tie to infinity
		{65520, 0x7c00, 0x4780},
		{math.MaxFloat32, 0x7c00, 0x7f80},
		{0x1p-24, 1, 0x3380}, // the least float16
		{0x1p-25, 0, 0x3300}, // ties to even
		{0x1.8p-25, 1, 0x3340},
		{inf, 0x7c00, 0x7f80},
		{-inf, 0xfc00, 0xff80},
		{math.Float32frombits(0x7f800001), 0x7e00, 0x7fc0}, // signalling NaN
		{math.Float32frombits(0xffffffff), 0xffff, 0xffff},
	} {
		if h, b := ToFloat16(c.f), ToBFloat16(c.f); h != c.half || b != c.brain {
			t.Errorf("%v is float16 %#04x and bfloat16 %#04x, want %#04x and %#04x", c.f, h, b, c.half, c.brain)
		}
	}
}
