package loadbal

// forecaster predicts each rank's pace in the next step. A pace is the time of one microbatch, in
// ticks, without the fixed part.
type forecaster interface {
	// begin starts a session with the known paces of the ranks, 0 for an unknown one.
	begin(paces []int64)
	// observe records the paces of a step, 0 for a rank without a measurement. It reports whether
	// any pace has jumped.
	observe(paces []int64) (jumped bool)
	// next returns the forecast by rank. The forecaster owns it; it is valid until the next call.
	next() []int64
	// noise returns the mean relative error of the forecast for a typical rank, times unit.
	noise() int64
	// rescale multiplies the remembered paces of a rank by num/den. It is called after the estimate
	// of the fixed part has changed: then the same compute times correspond to other paces.
	rescale(rank int, num, den int64)
}

// defaultNoise is the assumed noise before the first measurements: 2 %.
const defaultNoise = unit / 50

// adaptiveEWMA smooths the pace of one rank: an exponentially weighted moving average (EWMA) whose
// gain adapts to the errors. The gain is the cube of |mean error| / mean |error|, the tracking
// signal of D. W. Trigg and A. G. Leach, "Exponential smoothing with an adaptive response rate",
// Operational Research Quarterly 18 (1967). The gain is small where the errors change their signs,
// as in noise, and 1 where all errors have the same sign, as in a drift.
//
// An error far outside the noise is a jump. A jump to a slower pace is accepted at once: if it was
// noise, the other ranks compute a little more for one step; if it was real and ignored, the whole
// step would take as long as this rank. For the same reason a jump to a faster pace is accepted
// only if two successive values show it.
type adaptiveEWMA struct {
	smoothed  int64 // smoothed pace, in ticks; 0 before the first
	meanError int64 // EWMA of the relative error, times unit
	// meanAbsError is an EWMA of the absolute value of the error, times unit.
	meanAbsError int64
	deviation    int64 // the noise: EWMA of the absolute error over a longer time, jumps included
	sinceJump    int64 // number of values since the last jump
	age          int64 // number of values that were compared with a smoothed pace
	// lastFaster is the last value if the value was a jump to a faster pace that is not accepted
	// yet; otherwise 0.
	lastFaster int64
}

// Parameters of adaptiveEWMA, in parts of unit. An error is a jump if it is above jumpNoise times
// the noise. An error below smallJump never is a jump, and an error above largeJump always is.
const (
	leastGain = unit / 16 // lower bound of the gain: the longest memory
	smallJump = unit / 16
	largeJump = unit * 4
	jumpNoise = 6
	// The noise of a rank is not well known before warmupSteps values.
	warmupSteps = 8
)

// newAdaptiveEWMA returns an average that starts at a pace, or at the first value if the pace is 0.
func newAdaptiveEWMA(pace int64) adaptiveEWMA {
	return adaptiveEWMA{smoothed: pace, deviation: defaultNoise}
}

// jumpThreshold returns the least relative error that counts as a jump. noise is the noise of a
// typical rank: the rank's own estimate comes from few values and may be too low by chance.
func (a *adaptiveEWMA) jumpThreshold(noise int64) int64 {
	return min(max(smallJump, jumpNoise*max(noise, a.deviation)), largeJump)
}

// observe records a pace. noise is the noise of a typical rank. It reports whether the pace is an
// accepted jump.
func (a *adaptiveEWMA) observe(pace, noise int64) (jumped bool) {
	if a.smoothed == 0 {
		a.smoothed, a.sinceJump = pace, 1
		return false
	}
	band, faster := a.jumpThreshold(noise), a.lastFaster
	e := quotient(pace-a.smoothed, a.smoothed)
	off := max(e, quotient(a.smoothed-pace, pace)) // symmetric: twice the pace and half the pace give the same
	// Errors are clipped, so that a few jumps do not count as noise. Many jumps do count as noise:
	// then a further jump carries no information.
	a.age++
	a.deviation += (min(off, unit/2) - a.deviation) / min(16, a.age+3)
	a.lastFaster = 0
	switch {
	case off > band && (e > 0 || faster != 0):
		a.smoothed, a.sinceJump, a.meanError, a.meanAbsError = max(pace, faster), 1, 0, 0
		return true
	case off > band:
		a.lastFaster = pace
		return false
	}
	e = max(-unit, min(unit, e))
	a.sinceJump++
	a.meanError += (e - a.meanError) / 4
	a.meanAbsError += (abs(e) - a.meanAbsError) / 4
	a.smoothed = max(1, a.smoothed+a.smoothed*a.gain()/unit*e/unit)
	return false
}

// gain returns the part of an error by which the smoothed pace is corrected, times unit. For the first
// values after a jump it is at least the gain of a plain mean.
func (a *adaptiveEWMA) gain() int64 {
	agree := min(quotient(abs(a.meanError), a.meanAbsError), unit)
	return max(leastGain, agree*agree/unit*agree/unit, unit/a.sinceJump)
}

// plain predicts that each rank keeps its smoothed pace.
type plain struct {
	ranks    []adaptiveEWMA // by rank
	smoothed []int64        // the forecast, by rank
}

// begin implements forecaster.
func (p *plain) begin(paces []int64) {
	p.ranks, p.smoothed = make([]adaptiveEWMA, len(paces)), make([]int64, len(paces))
	for r, pace := range paces {
		p.ranks[r] = newAdaptiveEWMA(pace)
	}
}

// observe implements forecaster. Every rank uses the noise of a typical rank.
func (p *plain) observe(paces []int64) (jumped bool) {
	noise := max(p.noise(), p.initialNoise(paces))
	for r, pace := range paces {
		if pace > 0 && p.ranks[r].observe(pace, noise) {
			jumped = true
		}
	}
	return jumped
}

// initialNoise returns the typical relative distance of paces from the smoothed paces in this step, over
// the ranks whose noise is not yet known well; 0 without such ranks.
func (p *plain) initialNoise(paces []int64) int64 {
	var all []int64
	for r, pace := range paces {
		if s := &p.ranks[r]; pace > 0 && s.smoothed > 0 && s.age < warmupSteps {
			all = append(all, min(abs(quotient(pace-s.smoothed, min(s.smoothed, pace))), unit/2))
		}
	}
	return median(all)
}

// next implements forecaster by the smoothed paces.
func (p *plain) next() []int64 {
	for r := range p.ranks {
		p.smoothed[r] = p.ranks[r].smoothed
	}
	return p.smoothed
}

// noise implements forecaster by the median over the ranks.
func (p *plain) noise() int64 {
	all := make([]int64, len(p.ranks))
	for r := range p.ranks {
		all[r] = p.ranks[r].deviation
	}
	return median(all)
}

// rescale implements forecaster.
func (p *plain) rescale(rank int, num, den int64) {
	s := &p.ranks[rank]
	s.smoothed, s.lastFaster = scaled(s.smoothed, num, den), scaled(s.lastFaster, num, den)
}

// scaled returns x*num/den for x >= 0, at least 1 unless x is 0. The ratio is limited in the same
// way as in quotient.
func scaled(x, num, den int64) int64 {
	if x == 0 {
		return 0
	}
	return max(1, x*quotient(num, den)/unit)
}
