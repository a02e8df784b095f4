package exact

import (
	"fmt"
	"math/bits"
	"slices"
)

// MaxMicrobatches is the largest number of microbatches in a step. It leaves 14 bits for the
// magnitudes of the values of each microbatch.
const MaxMicrobatches = 1 << 16

// Bounds of exponents: 2^exponent is a normal float32, and an exponent fits an int8.
const (
	minExponent = -126
	maxExponent = 127
)

// unset is the exponent of a parameter whose gradients have all been zero so far.
const unset = -128

// Peak is the biased binary exponent of the largest magnitude in a float32 vector: all elements
// are below 2^(Peak-126). 0 means that all elements are zero or subnormal, 255 that some element is
// infinite or NaN. Peaks of several vectors are combined with max. Peak is an alias so that
// collective.Max accepts it.
type Peak = uint8

// notFinite is the peak of a vector with an infinity or a NaN.
const notFinite Peak = 255

// Scale holds the exponents of all parameters for one attempt at a step. It is an immutable
// value, equal at all peers; Next makes a new one.
type Scale struct {
	capacity  int    // bits of the magnitude: |quantised value| <= 2^capacity
	exponents []int8 // by parameter
}

// New returns the scale of the first step of a job with the given number of parameters and of
// microbatches per full step. It returns an error for more than MaxMicrobatches.
func New(params, microbatches int) (Scale, error) {
	exponents := make([]int8, params)
	for i := range exponents {
		exponents[i] = unset
	}
	return Restore(exponents, microbatches)
}

// Restore returns the scale with the given Exponents of an earlier scale, for a job with the same
// number of microbatches per full step. It copies the exponents.
func Restore(exponents []int8, microbatches int) (Scale, error) {
	if microbatches < 1 || microbatches > MaxMicrobatches {
		return Scale{}, fmt.Errorf("exact: scale: %d microbatches in a step, want 1 to %d", microbatches, MaxMicrobatches)
	}
	for i, e := range exponents {
		if e < minExponent && e != unset {
			return Scale{}, fmt.Errorf("exact: scale: exponent %d of parameter %d is below %d", e, i, minExponent)
		}
	}
	return Scale{capacity: capacityFor(microbatches), exponents: slices.Clone(exponents)}, nil
}

// capacityFor returns the largest r with microbatches * 2^r <= 2^31 - 1.
func capacityFor(microbatches int) int { return bits.Len32(uint32((1<<31-1)/microbatches)) - 1 }

// Exponents returns the argument of Restore, one number per parameter. The slice is a part of the
// scale and must not be changed.
func (s Scale) Exponents() []int8 { return s.exponents }

// Equal reports whether both scales quantise in the same way.
func (s Scale) Equal(t Scale) bool {
	return s.capacity == t.capacity && slices.Equal(s.exponents, t.exponents)
}

// Fits reports whether sums made with this scale can be used: no value was too large and, for a
// parameter without history, no value lost too many bits. peaks are the peaks of the whole step,
// reduced over all peers, one per parameter and all finite. If the sums do not fit, the step has to
// be computed again with the scale Next(peaks), which fits.
func (s Scale) Fits(peaks []Peak) bool {
	s.checkLength(peaks)
	for i, p := range peaks {
		if s.over(i, p) || s.blurred(i, p) {
			return false
		}
	}
	return true
}

// NotFinite returns the first parameter with an infinity or a NaN in its gradient, or -1.
func NotFinite(peaks []Peak) int { return slices.Index(peaks, notFinite) }

// Next returns the scale for the step after one with these peaks, or for another attempt at the
// same step. peaks are as for Fits. The result depends on s and peaks only.
func (s Scale) Next(peaks []Peak) Scale {
	s.checkLength(peaks)
	next := Scale{capacity: s.capacity, exponents: make([]int8, len(peaks))}
	for i, p := range peaks {
		next.exponents[i] = s.next(s.exponents[i], p)
	}
	return next
}

// next is Next for one parameter. An exponent falls at once and rises by half of the way. Zero
// gradients leave it unchanged.
func (s Scale) next(exponent int8, p Peak) int8 {
	if p == 0 {
		return exponent
	}
	want, have := s.ideal(p), int(exponent)
	if exponent != unset && want > have {
		want = have + (want-have+1)/2
	}
	return int8(want)
}

// ideal returns the exponent with which values below 2^(p-126) leave headroom bits of the capacity
// free. It is at least -118, because p is at most 254 and the capacity at least 14.
func (s Scale) ideal(p Peak) int {
	return min(s.capacity-s.headroom()-(int(p)-126), maxExponent)
}

// headroom returns the number of bits by which the peak may grow from one step to the next. It is
// a part of the capacity, so a small capacity has less of it.
func (s Scale) headroom() int { return min(6, s.capacity/3) }

// guess returns the exponent of a parameter without history. It is the ideal exponent for a largest
// magnitude between 2 and 4.
func (s Scale) guess() int { return s.capacity - s.headroom() - 2 }

// exponent returns the exponent with which parameter i is quantised.
func (s Scale) exponent(i int) int {
	if e := s.exponents[i]; e != unset {
		return int(e)
	}
	return s.guess()
}

// over reports whether values below 2^(p-126) might exceed the capacity. It depends on the peak
// alone, so it holds for a step exactly if it holds for one of the step's microbatches.
func (s Scale) over(i int, p Peak) bool { return p != 0 && int(p)-126+s.exponent(i) > s.capacity }

// blurred reports whether the guess for a parameter without history loses more than 8 bits against
// the ideal exponent, or more than half of the bits below the headroom if that is less. In later
// steps, gradients that shrink suddenly lose bits for a step or two, which is not worth another
// attempt.
func (s Scale) blurred(i int, p Peak) bool {
	lost := s.ideal(p) - s.guess()
	return s.exponents[i] == unset && p != 0 && lost > min(8, (s.capacity-s.headroom())/2)
}

// checkLength panics if the number of peaks is not the number of parameters.
func (s Scale) checkLength(peaks []Peak) {
	if len(peaks) != len(s.exponents) {
		panic(fmt.Sprintf("exact: %d peaks for %d parameters, want one for each", len(peaks), len(s.exponents)))
	}
}
