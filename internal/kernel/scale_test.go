package kernel

import (
	"bytes"
	"math"
	"slices"
	"testing"
)

// Finite finds each value that is not finite at each place, at every level.
func TestFinite(t *testing.T) {
	bad := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}
	for _, l := range levels() {
		for n := range 131 {
			v, _ := aligned[float32](n, n%5)
			for i := range v {
				v[i] = math.MaxFloat32 * float32(1-i%3)
			}
			if !finite(l, v) {
				t.Errorf("%v: %d finite elements: false", l, n)
			}
			for i := range v {
				was := v[i]
				for _, b := range bad {
					v[i] = b
					if finite(l, v) {
						t.Errorf("%v: %v at %d of %d: true", l, b, i, n)
					}
				}
				v[i] = was
			}
		}
	}
}

// Scale gives the products of the loop in Go, bit for bit, tells whether they are finite, and writes nothing else.
func TestScale(t *testing.T) {
	p := newPool[float32](5)
	for _, l := range levels() {
		for n := range 301 {
			for _, factor := range []float32{0.3, -1, 0, float32(math.Inf(1)), 1e30} {
				v, memory := aligned[float32](n, p.r.IntN(16))
				p.fill(memory)
				if n%2 == 0 {
					for i := range v {
						v[i] = float32(i) - 7
					}
				}
				before := slices.Clone(memory)
				want := slices.Clone(v)
				ok := scaleLoop(want, factor)
				if got := scale(l, v, factor); got != ok {
					t.Fatalf("%v: %d elements times %v: finite: %t, want %t", l, n, factor, got, ok)
				}
				for i := range v {
					if math.IsNaN(float64(v[i])) && math.IsNaN(float64(want[i])) {
						v[i], want[i] = 0, 0
					}
				}
				if !bytes.Equal(Bytes(v), Bytes(want)) {
					t.Fatalf("%v: %d elements times %v: %v, want %v", l, n, factor, v, want)
				}
				checkAround(t, memory, before, v)
			}
		}
	}
}

// Neither allocates.
func TestScaleAllocates(t *testing.T) {
	v := make([]float32, 1000)
	if n := testing.AllocsPerRun(10, func() { Scale(v, 2); Finite(v) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkScale(b *testing.B) {
	v := ones[float32](1, 16<<20)[0]
	for _, l := range levels() {
		b.Run("finite/"+[]string{"plain", "avx2", "avx512"}[l], func(b *testing.B) {
			b.SetBytes(16 << 20)
			for b.Loop() {
				finite(l, v)
			}
		})
		b.Run("scale/"+[]string{"plain", "avx2", "avx512"}[l], func(b *testing.B) {
			b.SetBytes(16 << 20)
			for b.Loop() {
				scale(l, v, 1)
			}
		})
	}
}
