package loadbal

import "slices"

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
func nanos(ticks int64) int64 { return min(ticks, longestTime) * 1000 / ticksPerMicro }

// Pace is the nanoseconds that a microbatch takes at a speed of Speed above 0: Each of a
// Cost in the unit of Policy.Costs.
func Pace(speed int64) int64 {
	return max(1, min(nanos(longestTime), 1_000_000_000*SpeedUnit/speed))
}
