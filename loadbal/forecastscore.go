package loadbal

import "math/bits"

// forecastScore decides whether to follow a forecast or to stay with the mean. A forecast that
// follows each change is right where ranks get slower and faster for some steps. Where
// times are mostly noise it is worse than the mean of many steps: it takes work away
// from who was unlucky last. Which of both holds is seen from the past: for each step,
// forecastScore compares the step times that either would have had.
type forecastScore struct {
	means          []int64 // of each rank's paces, over about meanSteps; 0 before the first
	age            int64   // steps that were taken in
	advantage      int64   // of the forecast, relative to the step's time and times unit, smoothed
	forecastShares []int   // shares by the forecast for the step under way
	meanShares     []int   // shares by the means
}

// Constants of forecastScore: the memory of the means and of the advantage in steps, and the
// advantage below which also jumps are not believed, for they were wrong too often.
const (
	meanSteps      = 64
	advantageSteps = 16
	minAdvantage   = -unit / 32
	// advantageFloor bounds the advantage from below, so that forecasts are followed again soon.
	advantageFloor = -unit / 8
)

func (t *forecastScore) begin(ranks int) { *t = forecastScore{means: make([]int64, ranks)} }

// observe takes the paces of a step, 0 where there was no measurement, and judges the
// shares that were made for it.
func (t *forecastScore) observe(paces []int64, fixed []fixedPart) {
	if t.forecastShares != nil {
		eager, calm := stepTime(t.forecastShares, paces, fixed), stepTime(t.meanShares, paces, fixed)
		gain := clamp(quotient(calm-eager, min(eager, calm)))
		t.advantage = max(advantageFloor, t.advantage+(gain-t.advantage)/advantageSteps)
	}
	t.age++
	for r, pace := range paces {
		switch mean := t.means[r]; {
		case pace == 0:
		case mean == 0:
			t.means[r] = pace
		default:
			// A single pace far off must not make up the mean.
			e := clamp(quotient(pace-mean, mean))
			t.means[r] = max(1, scaled(mean, unit+e/min(meanSteps, t.age), unit))
		}
	}
}

// shrunkMeans are the means, nearer to their median by what may be noise in them: where little
// is known ranks are taken to be alike.
func (t *forecastScore) shrunkMeans(noise int64) []int64 {
	var known []int64
	for _, mean := range t.means {
		if mean > 0 {
			known = append(known, mean)
		}
	}
	middle := median(known)
	// The noise of a mean of n values falls as the square root of n.
	root := int64(1) << (bits.Len64(uint64(min(t.age, meanSteps))) / 2)
	paces := make([]int64, len(t.means))
	for r, mean := range t.means {
		if mean > 0 {
			paces[r] = shrinkToward(mean, middle, 2*noise/root)
		}
	}
	return paces
}

// stepTime is how long shares would have taken at some paces.
func stepTime(shares []int, paces []int64, fixed []fixedPart) int64 {
	var longest int64
	for r, pace := range paces {
		if pace > 0 {
			b := int64(max(1, shares[r]))
			longest = max(longest, min(pace, maxTime/b)*b+fixed[r].ticks(pace))
		}
	}
	return longest
}

// followForecast reports whether to follow the forecast. After a jump it gets a chance unless
// it was clearly wrong in the past.
func (t *forecastScore) followForecast(jumped bool) bool {
	return t.advantage >= 0 || jumped && t.advantage > minAdvantage
}

// rescale is that of a forecaster.
func (t *forecastScore) rescale(rank int, num, den int64) {
	t.means[rank] = scaled(t.means[rank], num, den)
}

// shrinkToward is a pace that is nearer to the middle by up to so much, relative to the
// smaller of both.
func shrinkToward(pace, middle, by int64) int64 {
	off := quotient(pace-middle, min(pace, middle))
	switch {
	case abs(off) >= 16*unit: // quotient tells no more
		return pace
	case off > by:
		return scaled(middle, unit+off-by, unit)
	case off < -by:
		return scaled(middle, unit, unit-off-by)
	}
	return middle
}
