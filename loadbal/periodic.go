package loadbal

// Lags that periodic considers, in steps.
const (
	shortestLag = 4
	longestLag  = 128
	// errorMemory is how long errors of lags are remembered, in steps.
	errorMemory = 256
)

// periodic extends ewmaForecaster by periodicity: it finds the lag after which each rank repeats
// its jumps, and forecasts them.
type periodic struct {
	ewmaForecaster
	histories []history
	forecast  []int64
}

// history is what one rank did in the last steps.
type history struct {
	values []int64               // the latest last, at most memory
	errors [longestLag + 1]int64 // per lag, smoothed: how far a value is from that so long before
	lag    int                   // after which jumps repeat; 0 if there is none
}

func (s *periodic) begin(paces []int64) {
	s.ewmaForecaster.begin(paces)
	s.histories, s.forecast = make([]history, len(paces)), make([]int64, len(paces))
}

// observe first lets in what was expected: a rank that got faster when it was expected
// to is believed at once.
func (s *periodic) observe(paces []int64) (jumped bool) {
	noise := s.noise()
	for r, pace := range paces {
		if pace == 0 {
			continue
		}
		rank, h := &s.ranks[r], &s.histories[r]
		if expected, ok := h.expectedJump(rank.level, rank.jumpThreshold(noise)); ok && near(pace, expected, rank.jumpThreshold(noise)) {
			rank.level, rank.sinceJump = expected, 1
		}
		h.record(pace, rank.jumpThreshold(noise))
	}
	return s.ewmaForecaster.observe(paces)
}

func (s *periodic) next() []int64 {
	noise := s.noise()
	for r, level := range s.ewmaForecaster.next() {
		s.forecast[r] = level
		if pace, ok := s.histories[r].expectedJump(level, s.ranks[r].jumpThreshold(noise)); ok {
			s.forecast[r] = pace
		}
	}
	return s.forecast
}

// record takes a pace and looks again for the lag.
func (h *history) record(pace, band int64) {
	for lag := 1; lag <= min(longestLag, len(h.values)); lag++ {
		before := h.values[len(h.values)-lag]
		off := min(max(0, abs(quotient(pace-before, min(pace, before)))-band), unit)
		h.errors[lag] += (off*unit - h.errors[lag]) / errorMemory
	}
	h.values = append(h.values, pace)
	if len(h.values) > errorMemory {
		h.values = h.values[1:]
	}
	h.lag = h.findLag()
}

// findLag is the shortest lag after which values repeat far better than from one step
// to the next, seen for two periods; 0 if there is none.
func (h *history) findLag() int {
	best := 0
	for lag := shortestLag; lag <= min(longestLag, len(h.values)/2); lag++ {
		if 4*h.errors[lag] < h.errors[1] && (best == 0 || 2*h.errors[lag] < h.errors[best]) {
			best = lag
		}
	}
	return best
}

// expectedJump is the next pace, if one period ago there was a jump: the level changes as it did
// then. Ratios are compared and not paces, for which part of a time counts as fixed may
// have changed since.
func (h *history) expectedJump(level, band int64) (pace int64, ok bool) {
	at := len(h.values) - h.lag
	if h.lag == 0 || at < 1 || near(h.values[at], h.values[at-1], band) {
		return 0, false
	}
	return scaled(level, h.values[at], h.values[at-1]), true
}

// near reports whether two paces differ by no more than band, relative to the smaller.
func near(a, b, band int64) bool { return abs(quotient(a-b, min(a, b))) <= band }
