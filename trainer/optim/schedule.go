package optim

import "math"

// Schedule returns the learning rate of a step, counted from 1. It is a pure function, so there is
// no state to save or to send to a joining peer.
type Schedule func(step int64) float64

// Constant returns a schedule whose learning rate is always rate.
func Constant(rate float64) Schedule {
	return func(int64) float64 { return rate }
}

// Steps returns a schedule that starts at rate and is multiplied by factor at equal intervals (step
// decay). every is the number of steps of an interval. It panics if every < 1.
func Steps(rate, factor float64, every int64) Schedule {
	if every < 1 {
		panic("optim: Steps needs at least one step between changes")
	}
	return func(step int64) float64 {
		return rate * math.Pow(factor, float64((step-1)/every))
	}
}

// Cosine returns a schedule that falls along half a cosine, from rate at step 1 to final at the
// step with the number last, and then stays at final (cosine annealing: Loshchilov and Hutter,
// arXiv 1608.03983).
func Cosine(rate, final float64, last int64) Schedule {
	return func(step int64) float64 {
		if step >= last {
			return final
		}
		done := float64(max(step, 1)-1) / float64(last-1)
		return final + (rate-final)*(1+math.Cos(math.Pi*done))/2
	}
}

// Warmup returns a schedule that rises linearly for the given number of steps, and afterwards
// follows another schedule, named then, which sees steps counted from the end of the warm-up. The
// rise ends one increment below then(1).
func Warmup(steps int64, then Schedule) Schedule {
	return func(step int64) float64 {
		if step > steps {
			return then(step - steps)
		}
		return then(1) * float64(step) / float64(steps+1)
	}
}
