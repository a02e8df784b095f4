package loadbal

import "math/bits"

// forecastScore decides for each step between two sets of shares: the shares by the forecast, and
// the shares by the mean pace of many steps. The forecast is better where ranks get slower and
// faster for some steps. The mean is better where times are mostly noise: there the forecast takes
// work away from a rank that was slow once, by chance. To choose, forecastScore computes after each
// step the step time that either set of shares would have had.
type forecastScore struct {
	means          []int64 // mean pace of each rank over about meanSteps; 0 before the first measurement
	age            int64   // number of recorded steps
	advantage      int64   // EWMA of the time saved by the forecast, relative to the step time and times unit
	forecastShares []int   // shares of the current step by the forecast; nil before the first step
	meanShares     []int   // shares of the current step by the means
}

// Parameters of forecastScore. meanSteps and advantageSteps are the memories of the means and of
// the advantage, in steps. If the advantage is below minAdvantage the forecast is not followed even
// after a jump, because too many of its jumps were noise.
const (
	meanSteps      = 64
	advantageSteps = 16
	minAdvantage   = -unit / 32
	// advantageFloor is the lower bound of the advantage. So the forecast is used again after a few
	// good steps, however long it was worse than the means before.
	advantageFloor = -unit / 8
)

// begin starts a session with the given number of ranks.
func (f *forecastScore) begin(ranks int) { *f = forecastScore{means: make([]int64, ranks)} }

// observe records the paces of a step, 0 for a rank without a measurement, and compares the two
// sets of shares of this step.
func (f *forecastScore) observe(paces []int64, fixed []fixedPart) {
	if f.forecastShares != nil {
		eager, calm := stepTime(f.forecastShares, paces, fixed), stepTime(f.meanShares, paces, fixed)
		gain := clamp(quotient(calm-eager, min(eager, calm)))
		f.advantage = max(advantageFloor, f.advantage+(gain-f.advantage)/advantageSteps)
	}
	f.age++
	for r, pace := range paces {
		switch mean := f.means[r]; {
		case pace == 0:
		case mean == 0:
			f.means[r] = pace
		default:
			// The error is clipped, so that one outlier does not dominate the mean.
			e := clamp(quotient(pace-mean, mean))
			f.means[r] = max(1, scaled(mean, unit+e/min(meanSteps, f.age), unit))
		}
	}
}

// shrunkMeans returns the means; each is moved towards the median of all means, by up to twice its
// standard error (shrinkage). So ranks get equal paces if their difference may be noise, above all
// after few steps. The result is 0 for a rank without a measurement.
func (f *forecastScore) shrunkMeans(noise int64) []int64 {
	var known []int64
	for _, mean := range f.means {
		if mean > 0 {
			known = append(known, mean)
		}
	}
	middle := median(known)
	// The noise of a mean of n values decreases with the square root of n, here rounded to a power
	// of two.
	root := int64(1) << (bits.Len64(uint64(min(f.age, meanSteps))) / 2)
	paces := make([]int64, len(f.means))
	for r, mean := range f.means {
		if mean > 0 {
			paces[r] = shrinkToward(mean, middle, 2*noise/root)
		}
	}
	return paces
}

// stepTime returns the time of a step with the given shares and paces, in ticks: the time of the
// slowest rank. Ranks with pace 0 do not count.
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

// followForecast reports whether to use the shares by the forecast. After a jump these shares are
// used unless the forecast was clearly worse than the means before.
func (f *forecastScore) followForecast(jumped bool) bool {
	return f.advantage >= 0 || jumped && f.advantage > minAdvantage
}

// rescale multiplies the mean of a rank by num/den, see forecaster.rescale.
func (f *forecastScore) rescale(rank int, num, den int64) {
	f.means[rank] = scaled(f.means[rank], num, den)
}

// shrinkToward moves a pace towards the value middle, but not beyond it. The argument by is the
// largest change, relative to the smaller of pace and middle, times unit.
func shrinkToward(pace, middle, by int64) int64 {
	off := quotient(pace-middle, min(pace, middle))
	switch {
	case abs(off) >= 16*unit: // beyond the range of quotient
		return pace
	case off > by:
		return scaled(middle, unit+off-by, unit)
	case off < -by:
		return scaled(middle, unit, unit-off-by)
	}
	return middle
}
