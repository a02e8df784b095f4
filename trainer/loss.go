package trainer

import (
	"math"
	"math/bits"
)

// lossSum is a sum of losses in fixed point, Hi + Lo/2^64. Unlike a float64 sum it does not
// depend on the order of its terms. Each term is truncated below 2^-64 and bounded by 2^46, so
// the sum over a step cannot overflow.
type lossSum struct {
	Hi int64
	Lo uint64
}

// maxLoss bounds the absolute loss of one microbatch.
const maxLoss = 1 << 46

// lossOf converts a finite loss to fixed point.
func lossOf(x float64) lossSum {
	magnitude := min(math.Abs(x), maxLoss)
	whole := math.Floor(magnitude)
	s := lossSum{int64(whole), uint64(math.Ldexp(magnitude-whole, 64))} // exact, as the fraction is below 1
	if x < 0 {
		return s.negated()
	}
	return s
}

// negated returns -s.
func (l lossSum) negated() lossSum {
	lo, borrow := bits.Sub64(0, l.Lo, 0)
	return lossSum{-l.Hi - int64(borrow), lo}
}

// plus returns l + t.
func (l lossSum) plus(t lossSum) lossSum {
	lo, carry := bits.Add64(l.Lo, t.Lo, 0)
	return lossSum{l.Hi + t.Hi + int64(carry), lo}
}

// float returns the float64 nearest to l, or a neighbour of that float64.
func (l lossSum) float() float64 {
	sign := 1.0
	if l.Hi < 0 {
		l, sign = l.negated(), -1
	}
	return sign * (float64(uint64(l.Hi)) + math.Ldexp(float64(l.Lo), -64))
}
