package loadbal

import (
	"cmp"
	"slices"

	"github.com/elrun/elrun/internal/apportion"
)

// tick is the unit of times in this package: microseconds are too coarse for the time
// of one microbatch of a small model.
const ticksPerMicro = 1024

// Cost is what a step costs one rank: a share of b microbatches takes Fixed + b*Each,
// in any unit of time. Fixed is not negative and Each is at least 1. The share is at
// least Min and, if Max is not 0, at most Max; Min is not above Max.
type Cost struct {
	Fixed, Each int64
	Min, Max    int
}

// Time is what a share takes.
func (c Cost) Time(share int) int64 { return c.Fixed + int64(share)*c.Each }

// limit is the largest share there can be, of so many microbatches.
func (c Cost) limit(microbatches int) int {
	if c.Max > 0 {
		return min(c.Max, microbatches)
	}
	return microbatches
}

// Slowest is the time of the rank that takes longest for its share: that of the step.
func Slowest(costs []Cost, shares []int) int64 {
	var t int64
	for r, c := range costs {
		t = max(t, c.Time(shares[r]))
	}
	return t
}

// Optimum splits microbatches so that the slowest rank takes as short as whole shares
// allow: as if each microbatch were given to the rank that would then be done first,
// ties to the lower one. Where the least shares take more than all microbatches they
// are waived, and where the bounds leave too little room, they are exceeded in
// proportion.
//
// It takes some ten passes over the ranks. Times must stay below 1<<44, and shares
// below 1<<19. It panics without ranks or with a negative number of microbatches.
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
	// No share can grow within the step's time, or the step would end sooner; so the
	// shares are those that fit into the time before, and some of those of exactly it.
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

// within is the largest share that takes no longer than until, inside the bounds.
func (c Cost) within(until int64, microbatches int) int {
	if until < c.Fixed {
		return c.Min
	}
	return int(min(max(int64(c.Min), (until-c.Fixed)/c.Each), int64(c.limit(microbatches))))
}

// earliest is the first time at which all microbatches fit into the shares.
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

// span is a time within which any rank can do anything it is allowed to.
func span(costs []Cost, microbatches int) int64 {
	var t int64
	for _, c := range costs {
		t = max(t, c.Time(c.limit(microbatches)))
	}
	return t
}

// first is the smallest t up to high where f, which does not fall, reaches goal.
// It expects a nearly straight f: it looks where a line between the ends of what is
// left would reach the goal, and in the middle every other time, for where f has a bend.
func first(high, goal int64, f func(int64) int64) int64 {
	low, atLow, atHigh := int64(-1), int64(0), f(high)
	for odd := false; high-low > 1; odd = !odd {
		t := low + (high-low)/2
		if odd && atHigh > atLow {
			// The division first: the product would not fit. What it loses is small.
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

func withoutMin(costs []Cost) []Cost {
	free := slices.Clone(costs)
	for r := range free {
		free[r].Min = 0
	}
	return free
}

// inProportion fills all to the same multiple of their bounds.
func inProportion(costs []Cost, microbatches int) []int {
	bounds := make([]int, len(costs))
	for r, c := range costs {
		bounds[r] = c.limit(microbatches)
	}
	return apportion.Fill(make([]int, len(costs)), bounds, microbatches)
}

// median is the middle one of values, the lower of two, and 0 of none.
func median[T cmp.Ordered](values []T) T {
	var none T
	if len(values) == 0 {
		return none
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted[(len(sorted)-1)/2]
}

// Costs returns what the ranks cost as the policy sees them, with times in nanoseconds;
// nil where no speed is known yet. The caller owns them.
func (t *table) Costs() []Cost {
	if !t.known {
		return nil
	}
	costs := slices.Clone(t.costs)
	for r := range costs {
		c := &costs[r]
		c.Fixed, c.Each = nanos(c.Fixed), max(1, nanos(c.Each))
	}
	return costs
}

// nanos converts ticks.
func nanos(ticks int64) int64 { return min(ticks, maxTime) * 1000 / ticksPerMicro }

// Pace is the nanoseconds that a microbatch takes at a speed of Speed above 0: Each of a
// Cost in the unit of Policy.Costs.
func Pace(speed int64) int64 {
	return max(1, min(nanos(maxTime), 1_000_000_000*SpeedUnit/speed))
}
