package loadbal

// Parameters of lbbspGPU.
const (
	firstWindow = 2  // least number of steps between moves
	maxWindow   = 16 // greatest number of steps between moves
	// balancedBelow is the imbalance below which nothing is moved, in parts of unit.
	balancedBelow = unit / 20
)

// lbbspGPU is LB-BSP for accelerators (the paper is cited at lbbspCPU). The time of an
// accelerator is t(b) = max(tau, a + c*b): below some share more microbatches cost nothing, so no
// speed can be computed from a time. lbbspGPU needs only the times: after each window of steps it
// moves some microbatches from the slowest to the fastest rank. If the receiving rank is then the
// slowest, or the giving rank the fastest, the move was too large: lbbspGPU halves the number of
// microbatches in a move and lengthens the window. If the imbalance stays large, lbbspGPU doubles
// the number and resets the window.
type lbbspGPU struct {
	table
	times      []medianFilter // compute time of each rank since the last move, in ticks
	untilMove  int            // remaining steps of the window
	window     int            // steps from a move to the next one
	count      int            // number of microbatches of a move
	slow, fast int            // ranks of the last move; -1 before the first
}

// Begin implements Policy.
func (l *lbbspGPU) Begin(speeds []int64) {
	l.table.Begin(speeds)
	l.times = make([]medianFilter, len(speeds))
	l.window, l.count, l.slow, l.fast = firstWindow, 0, -1, -1
}

// Next implements Policy. It computes the first shares of a session, and the shares for another
// number of microbatches, as if the costs were linear. A move takes at most a quarter of an average
// share, or one microbatch, so that one wrong measurement changes little.
func (l *lbbspGPU) Next(reports []Report, microbatches int) ([]int, string) {
	l.setBounds(reports)
	for r, report := range reports {
		if t, ok := report.measured(); ok {
			l.times[r].Add(t)
			l.costs[r].Each, l.known = max(1, l.times[r].Value()/int64(report.Share)), true
		}
	}
	best := l.solve(microbatches)
	most := max(1, microbatches/len(l.costs)/4)
	if l.needsNewShares(microbatches) {
		l.count, l.untilMove = most, l.window
		return l.set(best)
	}
	if l.untilMove--; l.untilMove > 0 {
		return l.set(l.shares)
	}
	slow, fast, imbalance := l.extremes()
	l.tune(slow, fast, imbalance, most)
	l.untilMove = l.window
	if imbalance < balancedBelow {
		return l.set(l.shares)
	}
	l.slow, l.fast = slow, fast
	for r := range l.times {
		l.times[r] = medianFilter{}
	}
	return l.set(l.moved(slow, fast, l.count))
}

// tune adapts the size of a move and the window to the effect of the last move.
func (l *lbbspGPU) tune(slow, fast int, imbalance int64, most int) {
	switch {
	case slow == l.fast || fast == l.slow:
		l.count, l.window = max(1, l.count/2), min(maxWindow, l.window+1)
	case imbalance > tuneBelow:
		l.count, l.window = min(most, l.count*2), firstWindow
	}
}
