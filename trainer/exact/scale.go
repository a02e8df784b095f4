package exact

import (
	"fmt"
	"math/bits"
	"slices"
)

// MaxMicrobatches is the most microbatches that a step can have. It leaves 14 bits
// for the values of each.
const MaxMicrobatches = 1 << 16

// Bounds of exponents: 2^exponent is a normal float32, and the exponent an int8.
const (
	minExponent = -126
	maxExponent = 127
)

// unset is the exponent of a parameter whose gradient has always been zero.
const unset = -128

// Peak is the biased binary exponent of the largest magnitude in a vector of float32:
// all of its elements are below 2^(Peak-126). 0 stands for zeros (and subnormal
// numbers), 255 for a vector with an element that is not finite. Peaks of several
// vectors are combined with max. It is an alias so that collective.Max can do it.
type Peak = uint8

// notFinite is the peak of a vector with NaN or an infinity.
const notFinite Peak = 255

// Scale holds the exponents of all parameters for one attempt at a step. It is a
// value: Next makes a new one. All peers have the same.
type Scale struct {
	room      int // |quantised value| <= 2^room
	exponents []int8
}

// New returns the scale of the first step of a job with so many parameters and
// microbatches per full step.
func New(params, microbatches int) (Scale, error) {
	exponents := make([]int8, params)
	for i := range exponents {
		exponents[i] = unset
	}
	return Restore(exponents, microbatches)
}

// Restore returns the scale whose Exponents were saved, of a job with the same
// number of microbatches per full step. The exponents are copied.
func Restore(exponents []int8, microbatches int) (Scale, error) {
	if microbatches < 1 || microbatches > MaxMicrobatches {
		return Scale{}, fmt.Errorf("exact: scale: %d microbatches in a step, want 1 to %d", microbatches, MaxMicrobatches)
	}
	for i, e := range exponents {
		if e < minExponent && e != unset {
			return Scale{}, fmt.Errorf("exact: scale: exponent %d of parameter %d is below %d", e, i, minExponent)
		}
	}
	return Scale{room: roomFor(microbatches), exponents: slices.Clone(exponents)}, nil
}

// roomFor returns the largest r with microbatches * 2^r <= 2^31 - 1.
func roomFor(microbatches int) int { return bits.Len32(uint32((1<<31-1)/microbatches)) - 1 }

// Exponents returns what Restore needs, one number per parameter. The slice is part
// of the scale and must not be changed.
func (s Scale) Exponents() []int8 { return s.exponents }

// Equal reports whether both scales quantise alike.
func (s Scale) Equal(t Scale) bool {
	return s.room == t.room && slices.Equal(s.exponents, t.exponents)
}

// Fits reports whether sums that were made with this scale can be used. peaks are
// those of the whole step, reduced over all peers, one per parameter and all finite.
// They fit if no value was too large and, for a first step, none lost too many bits.
// If they do not, the step is to be computed again with the scale Next(peaks), which
// fits.
func (s Scale) Fits(peaks []Peak) bool {
	s.checkLength(peaks)
	for i, p := range peaks {
		if s.over(i, p) || s.blurred(i, p) {
			return false
		}
	}
	return true
}

// NotFinite returns the first parameter that has a NaN or an infinity in its
// gradient, or -1.
func NotFinite(peaks []Peak) int { return slices.Index(peaks, notFinite) }

// Next returns the scale for the step after one with these peaks, or for another
// attempt at the same. peaks are as in Fits. The result depends on nothing but s and
// peaks.
func (s Scale) Next(peaks []Peak) Scale {
	s.checkLength(peaks)
	next := Scale{room: s.room, exponents: make([]int8, len(peaks))}
	for i, p := range peaks {
		next.exponents[i] = s.next(s.exponents[i], p)
	}
	return next
}

// next is Next for one parameter. Exponents fall at once and rise by half of the way.
// Zeros say nothing about what comes after them.
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

// ideal returns the exponent that leaves the headroom above values below 2^(p-126).
// It is at least -118, as p is at most 254 and the room at least 14.
func (s Scale) ideal(p Peak) int {
	return min(s.room-s.headroom()-(int(p)-126), maxExponent)
}

// headroom is how many bits the peak of a step may be above that of the one before.
// It is taken from the room, so a small room has less of it.
func (s Scale) headroom() int { return min(6, s.room/3) }

// guess is the exponent of a parameter without history: ideal for a largest
// magnitude between 2 and 4.
func (s Scale) guess() int { return s.room - s.headroom() - 2 }

// exponent returns the exponent to quantise parameter i with.
func (s Scale) exponent(i int) int {
	if e := s.exponents[i]; e != unset {
		return int(e)
	}
	return s.guess()
}

// over reports whether values below 2^(p-126) might not fit the room. It looks at
// the peak alone, so that it holds for a step exactly if it holds for one of its
// microbatches.
func (s Scale) over(i int, p Peak) bool { return p != 0 && int(p)-126+s.exponent(i) > s.room }

// blurred reports whether a parameter without history got a guess that loses more
// than 8 bits of what the ideal exponent gives. Later, gradients that fall suddenly
// lose bits for a step or two; that is not worth another attempt.
func (s Scale) blurred(i int, p Peak) bool {
	lost := s.ideal(p) - s.guess()
	return s.exponents[i] == unset && p != 0 && lost > min(8, (s.room-s.headroom())/2)
}

// checkLength panics on peaks of another number of parameters.
func (s Scale) checkLength(peaks []Peak) {
	if len(peaks) != len(s.exponents) {
		panic(fmt.Sprintf("exact: %d peaks for %d parameters", len(peaks), len(s.exponents)))
	}
}
