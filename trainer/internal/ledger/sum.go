package ledger

import (
	"math"
	"math/bits"
)

// Sum is a sum of losses in fixed point, Hi + Lo/2^64. Unlike a float64 sum it does not
// depend on the order of its terms. Each term is truncated below 2^-64 and bounded by 2^46, so
// the sum over a step cannot overflow.
type Sum struct {
	Hi int64
	Lo uint64
}

// maxLoss bounds the absolute loss of one microbatch.
const maxLoss = 1 << 46

// SumOf converts a finite loss to fixed point.
func SumOf(x float64) Sum {
	magnitude := min(math.Abs(x), maxLoss)
	whole := math.Floor(magnitude)
	s := Sum{int64(whole), uint64(math.Ldexp(magnitude-whole, 64))} // exact, as the fraction is below 1
	if x < 0 {
		return s.negated()
	}
	return s
}

// negated returns -s.
func (s Sum) negated() Sum {
	lo, borrow := bits.Sub64(0, s.Lo, 0)
	return Sum{-s.Hi - int64(borrow), lo}
}

// Plus returns s + t.
func (s Sum) Plus(t Sum) Sum {
	lo, carry := bits.Add64(s.Lo, t.Lo, 0)
	return Sum{s.Hi + t.Hi + int64(carry), lo}
}

// Float returns the float64 nearest to s, or a neighbour of that float64.
func (s Sum) Float() float64 {
	sign := 1.0
	if s.Hi < 0 {
		s, sign = s.negated(), -1
	}
	return sign * (float64(uint64(s.Hi)) + math.Ldexp(float64(s.Lo), -64))
}
