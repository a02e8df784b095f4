package exact

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestRoom(t *testing.T) {
	for k := 1; k <= MaxMicrobatches; k++ {
		r := capacityFor(k)
		if int64(k)<<r > math.MaxInt32 || int64(k)<<(r+1) <= math.MaxInt32 {
			t.Fatalf("%d microbatches: capacity of %d bits", k, r)
		}
	}
}

func TestSizesAndExponentsAreChecked(t *testing.T) {
	for _, k := range []int{-1, 0, MaxMicrobatches + 1} {
		if _, err := New(3, k); err == nil {
			t.Errorf("%d microbatches were taken", k)
		}
	}
	if _, err := Restore([]int8{3, -127}, 1); err == nil {
		t.Error("an exponent of -127 was taken")
	}
	s, err := Restore([]int8{3, minExponent, unset}, 1)
	if err != nil || !slices.Equal(s.Exponents(), []int8{3, minExponent, unset}) {
		t.Errorf("exponents %v, error %v", s.Exponents(), err)
	}
	if other := newScale(t, 3, 1); s.Equal(other) || !s.Equal(s) {
		t.Error("Equal is wrong")
	}
}

// scales draws a scale after an arbitrary history.
func scales(t *rapid.T) Scale {
	k := rapid.SampledFrom([]int{1, 2, 7, 32, 1000, MaxMicrobatches}).Draw(t, "microbatches")
	e := rapid.OneOf(rapid.Just(unset), rapid.IntRange(minExponent, maxExponent)).Draw(t, "exponent")
	s, err := Restore([]int8{int8(e)}, k)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A step that does not fit is computed only once more. The scale that is made from its peaks fits them with headroom, and its
// exponents stay in range.
func TestTheNextScaleFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := scales(t)
		p := Peak(rapid.IntRange(0, 254).Draw(t, "peak"))
		next := s.Next([]Peak{p})
		if !next.Fits([]Peak{p}) {
			t.Fatalf("after peak %d the scale %d does not fit it", p, next.exponents[0])
		}
		if p > 0 && int(p)+s.headroom() < 255 && !next.Fits([]Peak{p + Peak(s.headroom())}) {
			t.Fatalf("after peak %d the scale %d has no headroom of %d bits", p, next.exponents[0], s.headroom())
		}
		if _, err := Restore(next.Exponents(), 1); err != nil {
			t.Fatal(err)
		}
		if p == 0 && !next.Equal(s) {
			t.Fatalf("zeros moved the exponent from %d to %d", s.exponents[0], next.exponents[0])
		}
	})
}

// With constant peaks the exponent reaches the ideal one within 8 steps and stays there.
func TestExponentsSettle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := scales(t)
		p := Peak(rapid.IntRange(1, 254).Draw(t, "peak"))
		for range 8 {
			s = s.Next([]Peak{p})
		}
		if got := int(s.exponents[0]); got != s.ideal(p) {
			t.Fatalf("exponent %d after 8 steps with peak %d, want %d", got, p, s.ideal(p))
		}
	})
}

// Peaks may grow by up to 6 bits a step, and may fall arbitrarily. After the first step this needs no second attempt.
func TestHeadroomPreventsSecondAttempts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newScale(t, 1, 32)
		p := rapid.IntRange(1, 254).Draw(t, "first peak")
		s = s.Next([]Peak{Peak(p)})
		for range 30 {
			p = min(254, max(1, p+rapid.IntRange(-20, 6).Draw(t, "change")))
			if !s.Fits([]Peak{Peak(p)}) {
				t.Fatalf("peak %d does not fit the exponent %d", p, s.exponents[0])
			}
			s = s.Next([]Peak{Peak(p)})
		}
	})
}

// The first scale fits common gradients, and Fits detects other gradients.
func TestFirstStep(t *testing.T) {
	s := newScale(t, 1, 32)
	for _, c := range []struct {
		largest float32
		fits    bool
	}{
		{0, true}, {0x1p-130, true}, {0x1p-126, false}, {1e-6, false}, {0.0078, false},
		{1.0 / 64, true}, {1, true}, {3, true}, {255, true}, {256, false}, {1e30, false},
	} {
		p := []Peak{PeakOf([]float32{c.largest})}
		if got := s.Fits(p); got != c.fits {
			t.Errorf("largest magnitude %v: fits %v, want %v", c.largest, got, c.fits)
		}
	}
}

// Each parameter has a scale of its own.
func TestParametersAreIndependent(t *testing.T) {
	s := newScale(t, 3, 16).Next([]Peak{100, 0, 140})
	one := newScale(t, 1, 16)
	want := []int8{one.Next([]Peak{100}).exponents[0], unset, one.Next([]Peak{140}).exponents[0]}
	if !slices.Equal(s.Exponents(), want) {
		t.Errorf("exponents %v, want %v", s.Exponents(), want)
	}
	if s.Fits([]Peak{100, 0, 200}) || s.Fits([]Peak{200, 0, 140}) || !s.Fits([]Peak{100, 126, 140}) {
		t.Error("Fits does not look at every parameter")
	}
}
