package loadbal

// Lags that a season looks at, in steps.
const (
	shortest = 4
	longest  = 128
	// memory is how long errors of lags are remembered, in steps.
	memory = 256
)

// season is plain, but that it finds out after how many steps each rank repeats its
// jumps, and expects them.
type season struct {
	plain
	past []history
	out  []int64
}

// history is what one rank did in the last steps.
type history struct {
	values []int64            // the latest last, at most memory
	errors [longest + 1]int64 // per lag, smoothed: how far a value is from that so long before
	lag    int                // after which jumps repeat; 0 if there is none
}

func (s *season) begin(paces []int64) {
	s.plain.begin(paces)
	s.past, s.out = make([]history, len(paces)), make([]int64, len(paces))
}

// observe first lets in what was expected: a rank that got faster when it was expected
// to is believed at once.
func (s *season) observe(paces []int64) (jumped bool) {
	noise := s.noise()
	for r, pace := range paces {
		if pace == 0 {
			continue
		}
		rank, h := &s.ranks[r], &s.past[r]
		if expected, ok := h.jump(rank.level, rank.band(noise)); ok && near(pace, expected, rank.band(noise)) {
			rank.level, rank.seen = expected, 1
		}
		h.add(pace, rank.band(noise))
	}
	return s.plain.observe(paces)
}

func (s *season) next() []int64 {
	noise := s.noise()
	for r, level := range s.plain.next() {
		s.out[r] = level
		if pace, ok := s.past[r].jump(level, s.ranks[r].band(noise)); ok {
			s.out[r] = pace
		}
	}
	return s.out
}

// add takes a pace and looks again for the lag.
func (h *history) add(pace, band int64) {
	for lag := 1; lag <= min(longest, len(h.values)); lag++ {
		before := h.values[len(h.values)-lag]
		off := min(max(0, abs(quotient(pace-before, min(pace, before)))-band), unit)
		h.errors[lag] += (off*unit - h.errors[lag]) / memory
	}
	h.values = append(h.values, pace)
	if len(h.values) > memory {
		h.values = h.values[1:]
	}
	h.lag = h.period()
}

// period is the shortest lag after which values repeat far better than from one step
// to the next, seen for two periods; 0 if there is none.
func (h *history) period() int {
	best := 0
	for lag := shortest; lag <= min(longest, len(h.values)/2); lag++ {
		if 4*h.errors[lag] < h.errors[1] && (best == 0 || 2*h.errors[lag] < h.errors[best]) {
			best = lag
		}
	}
	return best
}

// jump is the next pace, if one period ago there was a jump: the level changes as it did
// then. Ratios are compared and not paces, for which part of a time counts as fixed may
// have changed since.
func (h *history) jump(level, band int64) (pace int64, ok bool) {
	at := len(h.values) - h.lag
	if h.lag == 0 || at < 1 || near(h.values[at], h.values[at-1], band) {
		return 0, false
	}
	return scaled(level, h.values[at], h.values[at-1]), true
}

// near reports whether two paces differ by no more than band, relative to the smaller.
func near(a, b, band int64) bool { return abs(quotient(a-b, min(a, b))) <= band }
