package loadbal

// forecaster predicts the paces of all ranks in the next step: the time that a
// microbatch takes each of them, in ticks.
type forecaster interface {
	// begin starts with what is known of the ranks' paces.
	begin(paces []int64)
	// observe takes the paces of a step, 0 where there was no measurement. It reports
	// whether one of them has jumped.
	observe(paces []int64) (jumped bool)
	// next is the forecast. It is valid until the next call.
	next() []int64
	// noise is how far paces are from what is expected, relative to it and times
	// unit, in the mean and for a typical rank.
	noise() int64
	// rescale multiplies what is remembered of a rank by num/den: what one microbatch
	// takes was found to be another part of the whole.
	rescale(rank int, num, den int64)
}

// defaultNoise is the noise that is assumed before there were measurements: 2 %.
const defaultNoise = unit / 50

// adaptiveEWMA follows the pace of one rank. Small errors are smoothed away, the more the
// less they agree: the gain is the cube of |mean error| / mean |error|, after Trigg
// and Leach, which is small where errors are noise and 1 where they all point one way.
//
// Errors far outside the noise are jumps. That a rank has become slower is believed at
// once: if it is wrong, the others do a little more for one step; if it were right and
// not believed, the whole step would take as long as this rank. For the same reason
// that it has become faster is believed when it is seen twice.
type adaptiveEWMA struct {
	level        int64
	meanError    int64 // smoothed error, relative and times unit
	meanAbsError int64 // smoothed absolute error, in the same way
	deviation    int64 // the same over a longer time: the noise
	sinceJump    int64 // values since the last jump
	age          int64 // values ever
	lastFaster   int64 // the value before, if it was far faster
}

// Shortest memory of a smoother, in parts of unit, and the size of a jump: at least
// smallJump, at most largeJump and in between so many times the noise.
const (
	leastGain = unit / 16
	smallJump = unit / 16
	largeJump = unit * 4
	jumpNoise = 6
	// warmupSteps is the age up to which the noise of a rank is not known well.
	warmupSteps = 8
)

func newAdaptiveEWMA(level int64) adaptiveEWMA {
	return adaptiveEWMA{level: level, deviation: defaultNoise}
}

// jumpThreshold is the size of the smallest jump. noise is that of a typical rank: the own one
// is known from few values only, and may by chance be too low.
func (s *adaptiveEWMA) jumpThreshold(noise int64) int64 {
	return min(max(smallJump, jumpNoise*max(noise, s.deviation)), largeJump)
}

// observe takes a pace, with the noise of a typical rank, and reports whether it is a
// jump.
func (s *adaptiveEWMA) observe(pace, noise int64) (jumped bool) {
	if s.level == 0 {
		s.level, s.sinceJump = pace, 1
		return false
	}
	band, faster := s.jumpThreshold(noise), s.lastFaster
	e := quotient(pace-s.level, s.level)
	off := max(e, quotient(s.level-pace, pace)) // the same for twice and for half the pace
	// Jumps count for less, for a few of them are no noise. Where there are many, though,
	// the next jump tells nothing.
	s.age++
	s.deviation += (min(off, unit/2) - s.deviation) / min(16, s.age+3)
	s.lastFaster = 0
	switch {
	case off > band && (e > 0 || faster != 0):
		s.level, s.sinceJump, s.meanError, s.meanAbsError = max(pace, faster), 1, 0, 0
		return true
	case off > band:
		s.lastFaster = pace
		return false
	}
	e = max(-unit, min(unit, e))
	s.sinceJump++
	s.meanError += (e - s.meanError) / 4
	s.meanAbsError += (abs(e) - s.meanAbsError) / 4
	s.level = max(1, s.level+s.level*s.gain()/unit*e/unit)
	return false
}

// gain is how much of an error is taken over.
func (s *adaptiveEWMA) gain() int64 {
	agree := min(quotient(abs(s.meanError), s.meanAbsError), unit)
	return max(leastGain, agree*agree/unit*agree/unit, unit/s.sinceJump)
}

// ewmaForecaster predicts that each rank goes on as it does.
type ewmaForecaster struct {
	ranks  []adaptiveEWMA
	levels []int64
}

func (p *ewmaForecaster) begin(paces []int64) {
	p.ranks, p.levels = make([]adaptiveEWMA, len(paces)), make([]int64, len(paces))
	for r, pace := range paces {
		p.ranks[r] = newAdaptiveEWMA(pace)
	}
}

func (p *ewmaForecaster) observe(paces []int64) (jumped bool) {
	noise := max(p.noise(), p.initialNoise(paces))
	for r, pace := range paces {
		if pace > 0 && p.ranks[r].observe(pace, noise) {
			jumped = true
		}
	}
	return jumped
}

// initialNoise is how far a typical rank is from its level in a step of the first ones, when
// the noise is not known yet; 0 later.
func (p *ewmaForecaster) initialNoise(paces []int64) int64 {
	var all []int64
	for r, pace := range paces {
		if s := &p.ranks[r]; pace > 0 && s.level > 0 && s.age < warmupSteps {
			all = append(all, min(abs(quotient(pace-s.level, min(s.level, pace))), unit/2))
		}
	}
	return median(all)
}

func (p *ewmaForecaster) next() []int64 {
	for r := range p.ranks {
		p.levels[r] = p.ranks[r].level
	}
	return p.levels
}

func (p *ewmaForecaster) noise() int64 {
	all := make([]int64, len(p.ranks))
	for r := range p.ranks {
		all[r] = p.ranks[r].deviation
	}
	return median(all)
}

func (p *ewmaForecaster) rescale(rank int, num, den int64) {
	s := &p.ranks[rank]
	s.level, s.lastFaster = scaled(s.level, num, den), scaled(s.lastFaster, num, den)
}

// scaled is x*num/den of values that are not negative, at least 1 unless x is 0.
func scaled(x, num, den int64) int64 {
	if x == 0 {
		return 0
	}
	return max(1, x*quotient(num, den)/unit)
}
