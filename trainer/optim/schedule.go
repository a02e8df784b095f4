package optim

import "math"

// Schedule gives the learning rate of a step. Steps count from 1. It is a pure
// function: nothing of it needs to be saved or sent to a peer.
type Schedule func(step int64) float64

// Constant is always rate.
func Constant(rate float64) Schedule {
	return func(int64) float64 { return rate }
}

// Steps starts at rate and multiplies it by factor after every so many steps. It
// panics if every < 1.
func Steps(rate, factor float64, every int64) Schedule {
	if every < 1 {
		panic("optim: Steps needs at least one step between changes")
	}
	return func(step int64) float64 {
		return rate * math.Pow(factor, float64((step-1)/every))
	}
}

// Cosine falls from rate at step 1 to final at step last along half a cosine,
// and stays there.
func Cosine(rate, final float64, last int64) Schedule {
	return func(step int64) float64 {
		if step >= last {
			return final
		}
		done := float64(max(step, 1)-1) / float64(last-1)
		return final + (rate-final)*(1+math.Cos(math.Pi*done))/2
	}
}

// Warmup climbs in equal steps to the first rate of then, which it reaches at step
// steps+1 and follows from there, with steps counted from the end of the warm-up.
func Warmup(steps int64, then Schedule) Schedule {
	return func(step int64) float64 {
		if step > steps {
			return then(step - steps)
		}
		return then(1) * float64(step) / float64(steps+1)
	}
}
