package loadbal

// Periods that periodic looks for, in steps.
const (
	shortestLag = 4
	longestLag  = 128
	// errorMemory is the number of steps over which the error of each lag is averaged (EWMA), and
	// the length of a history.
	errorMemory = 256
)

// periodic extends plain by periodicity: it finds the period after which a rank repeats
// its jumps, and forecasts the next jump. The period is a lag for which the mean absolute
// difference of paces is small (average magnitude difference function, AMDF).
type periodic struct {
	plain
	histories []history // by rank
	forecast  []int64   // by rank
}

// history is the recent paces of one rank and the period found in them.
type history struct {
	values []int64               // at most errorMemory paces, the latest last
	errors [longestLag + 1]int64 // by lag: EWMA of the relative difference between a pace and the pace lag steps before
	lag    int                   // the period in steps; 0 if none was found
}

// begin implements forecaster.
func (p *periodic) begin(paces []int64) {
	p.plain.begin(paces)
	p.histories, p.forecast = make([]history, len(paces)), make([]int64, len(paces))
}

// observe implements forecaster. If a jump that was forecast has happened, observe sets the smoothed pace
// first, so that an expected jump to a faster pace is accepted at once.
func (p *periodic) observe(paces []int64) (jumped bool) {
	noise := p.noise()
	for r, pace := range paces {
		if pace == 0 {
			continue
		}
		rank, h := &p.ranks[r], &p.histories[r]
		if expected, ok := h.expectedJump(rank.smoothed, rank.jumpThreshold(noise)); ok && near(pace, expected, rank.jumpThreshold(noise)) {
			rank.smoothed, rank.sinceJump = expected, 1
		}
		h.record(pace, rank.jumpThreshold(noise))
	}
	return p.plain.observe(paces)
}

// next implements forecaster: the smoothed pace, or the pace after an expected jump.
func (p *periodic) next() []int64 {
	noise := p.noise()
	for r, smoothed := range p.plain.next() {
		p.forecast[r] = smoothed
		if pace, ok := p.histories[r].expectedJump(smoothed, p.ranks[r].jumpThreshold(noise)); ok {
			p.forecast[r] = pace
		}
	}
	return p.forecast
}

// record appends a pace, updates the error of each lag, and finds the period anew. Differences up
// to band count as 0.
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

// findLag returns the period in steps, or 0 if the paces have no period. A period must have been
// seen twice, and its error must be below a quarter of the error of lag 1. A longer period must
// have less than half the error of a shorter one, because every multiple of a period is a period.
func (h *history) findLag() int {
	best := 0
	for lag := shortestLag; lag <= min(longestLag, len(h.values)/2); lag++ {
		if 4*h.errors[lag] < h.errors[1] && (best == 0 || 2*h.errors[lag] < h.errors[best]) {
			best = lag
		}
	}
	return best
}

// expectedJump returns the pace of the next step if one period ago there was a jump: the smoothed pace
// times the ratio of that jump. It uses the ratio and not the pace of that time, because all paces
// change with the estimate of the fixed part. ok is false where no jump is expected.
func (h *history) expectedJump(smoothed, band int64) (pace int64, ok bool) {
	at := len(h.values) - h.lag
	if h.lag == 0 || at < 1 || near(h.values[at], h.values[at-1], band) {
		return 0, false
	}
	return scaled(smoothed, h.values[at], h.values[at-1]), true
}

// near reports whether two paces differ by at most band, relative to the smaller one.
func near(a, b, band int64) bool { return abs(quotient(a-b, min(a, b))) <= band }
