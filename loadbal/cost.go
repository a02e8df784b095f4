package loadbal

import (
	"cmp"
	"slices"

	"github.com/elrun/elrun/internal/apportion"
)

// ticksPerMicro is the number of ticks in a microsecond. A tick is the unit of times in this
// package: microseconds are too coarse for one microbatch of a small model.
const ticksPerMicro = 1024

// Cost is the cost model of one rank: the compute time of a share, and the bounds of the share. A
// share of b microbatches takes Fixed + b*Each, in any unit of time.
//
// Invariants: Fixed is not negative, Each is at least 1, Min is not above Max. The share is at
// least Min and, if Max is not 0, at most Max.
type Cost struct {
	Fixed, Each int64
	Min, Max    int
}

// Time returns the compute time of a share.
func (c Cost) Time(share int) int64 { return c.Fixed + int64(share)*c.Each }

// limit returns the largest allowed share of the given number of microbatches.
func (c Cost) limit(microbatches int) int {
	if c.Max > 0 {
		return min(c.Max, microbatches)
	}
	return microbatches
}

// Slowest returns the compute time of the slowest rank for its share: the time of the step, in the
// unit of the costs. Both arguments are by rank. A rank without a share counts with its fixed part.
func Slowest(costs []Cost, shares []int) int64 {
	var t int64
	for r, c := range costs {
		t = max(t, c.Time(shares[r]))
	}
	return t
}

// Optimum splits microbatches among the ranks so that the slowest rank takes the shortest time that
// whole shares allow (the minimal makespan). A greedy loop has the same result: it gives each
// microbatch to the rank that would then finish first, and of equal ranks to the lower one. If the
// sum of all Min exceeds microbatches, the bounds Min are ignored. If the sum of all Max is below
// microbatches, the bounds Max are exceeded in proportion.
//
// It takes about ten passes over the ranks, however many microbatches there are. Times must be
// below 1<<44 and shares below 1<<19. It panics without ranks or with a negative number of
// microbatches.
func Optimum(costs []Cost, microbatches int) []int {
	if len(costs) == 0 || microbatches < 0 {
		panic("loadbal: Optimum needs at least one rank and no negative number of microbatches")
	}
	least, most := 0, 0
	for _, c := range costs {
		least += c.Min
		most += c.limit(microbatches)
	}
	switch {
	case least > microbatches:
		return Optimum(withoutMin(costs), microbatches)
	case most < microbatches:
		return inProportion(costs, microbatches)
	}
	// The ranks can compute all microbatches in this time, but not in a time that is one unit
	// shorter. So each rank first gets the share that it finishes in the shorter time. The
	// remaining microbatches go to ranks that finish one more exactly at the end of the full time,
	// the lower ranks first.
	until := earliest(costs, microbatches)
	shares, left := make([]int, len(costs)), microbatches
	for r, c := range costs {
		shares[r] = c.within(until-1, microbatches)
		left -= shares[r]
	}
	for r, c := range costs {
		if left > 0 && c.within(until, microbatches) > shares[r] {
			shares[r]++
			left--
		}
	}
	return shares
}

// within returns the largest share that a rank finishes by the time until, inside its bounds.
func (c Cost) within(until int64, microbatches int) int {
	if until < c.Fixed {
		return c.Min
	}
	return int(min(max(int64(c.Min), (until-c.Fixed)/c.Each), int64(c.limit(microbatches))))
}

// earliest returns the shortest time in which the ranks can compute all microbatches. The number of
// microbatches that fit a time never decreases with the time, so a search over the time finds the
// shortest one. Each step of the search is one pass over the ranks.
func earliest(costs []Cost, microbatches int) int64 {
	fit := func(until int64) int64 {
		n := 0
		for _, c := range costs {
			n += c.within(until, microbatches)
		}
		return int64(n)
	}
	return first(span(costs, microbatches), int64(microbatches), fit)
}

// span returns an upper bound of the step's time: every rank can finish its largest share in it.
func span(costs []Cost, microbatches int) int64 {
	var t int64
	for _, c := range costs {
		t = max(t, c.Time(c.limit(microbatches)))
	}
	return t
}

// first returns the smallest t, 0 <= t <= high, with f(t) >= goal. f must not decrease, and f(high)
// must reach goal. The search interpolates linearly between the ends of the remaining interval,
// because f is nearly a straight line. Every other step is a bisection, because f may have a bend.
func first(high, goal int64, f func(int64) int64) int64 {
	low, atLow, atHigh := int64(-1), int64(0), f(high)
	for odd := false; high-low > 1; odd = !odd {
		t := low + (high-low)/2
		if odd && atHigh > atLow {
			// Divide first, as the product would overflow. The loss of precision is small.
			t = low + max(1, min(high-low-1, (high-low)/(atHigh-atLow)*(goal-atLow)))
		}
		if at := f(t); at >= goal {
			high, atHigh = t, at
		} else {
			low, atLow = t, at
		}
	}
	return high
}

// withoutMin returns costs without their lower bounds.
func withoutMin(costs []Cost) []Cost {
	free := slices.Clone(costs)
	for r := range free {
		free[r].Min = 0
	}
	return free
}

// inProportion splits microbatches in proportion to the upper bounds of the ranks.
func inProportion(costs []Cost, microbatches int) []int {
	bounds := make([]int, len(costs))
	for r, c := range costs {
		bounds[r] = c.limit(microbatches)
	}
	return apportion.Fill(make([]int, len(costs)), bounds, microbatches)
}

// median returns the middle value; of two middle values the lower one; and 0 if there are no
// values.
func median[T cmp.Ordered](values []T) T {
	var none T
	if len(values) == 0 {
		return none
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted[(len(sorted)-1)/2]
}

// nanos converts ticks to nanoseconds.
func nanos(ticks int64) int64 { return min(ticks, maxTime) * 1000 / ticksPerMicro }

// Pace returns the nanoseconds that one microbatch takes at a speed above 0. It is the inverse of
// Speed, and has the unit of Cost.Each in Policy.Costs.
func Pace(speed int64) int64 {
	return max(1, min(nanos(maxTime), 1_000_000_000*SpeedUnit/speed))
}
