package loadbal

// Parameters of exchange.
const (
	firstWindow = 2  // least number of steps between moves
	maxWindow   = 16 // greatest number of steps between moves
	// balancedBelow is the imbalance below which nothing is moved, in parts of unit.
	balancedBelow = unit / 20
)

// exchange is LB-BSP for accelerators (the paper is cited at predicting). The time of an
// accelerator is t(b) = max(tau, a + c*b): below some share more microbatches cost nothing, so no
// speed can be computed from a time. exchange needs only the times: after each window of steps it
// moves some microbatches from the slowest to the fastest rank. If the receiving rank is then the
// slowest, or the giving rank the fastest, the move was too large: exchange halves the number of
// microbatches in a move and lengthens the window. If the imbalance stays large, exchange doubles
// the number and resets the window.
type exchange struct {
	table
	times      []medianFilter // compute time of each rank since the last move, in ticks
	untilMove  int            // remaining steps of the window
	window     int            // steps from a move to the next one
	count      int            // number of microbatches of a move
	slow, fast int            // ranks of the last move; -1 before the first
}

// Begin implements Policy.
func (e *exchange) Begin(speeds []int64) {
	e.table.Begin(speeds)
	e.times = make([]medianFilter, len(speeds))
	e.window, e.count, e.slow, e.fast = firstWindow, 0, -1, -1
}

// Next implements Policy. It computes the first shares of a session, and the shares for another
// number of microbatches, as if the costs were linear. A move takes at most a quarter of an average
// share, or one microbatch, so that one wrong measurement changes little.
func (e *exchange) Next(reports []Report, microbatches int) ([]int, string) {
	e.setBounds(reports)
	for r, report := range reports {
		if t, ok := report.measured(); ok {
			e.times[r].Add(t)
			e.costs[r].Each, e.known = max(1, e.times[r].Value()/int64(report.Share)), true
		}
	}
	best := e.solve(microbatches)
	most := max(1, microbatches/len(e.costs)/4)
	if e.needsNewShares(microbatches) {
		e.count, e.untilMove = most, e.window
		return e.set(best)
	}
	if e.untilMove--; e.untilMove > 0 {
		return e.set(e.shares)
	}
	slow, fast, imbalance := e.extremes()
	e.tune(slow, fast, imbalance, most)
	e.untilMove = e.window
	if imbalance < balancedBelow {
		return e.set(e.shares)
	}
	e.slow, e.fast = slow, fast
	for r := range e.times {
		e.times[r] = medianFilter{}
	}
	return e.set(e.moved(slow, fast, e.count))
}

// tune adapts the size of a move and the window to the effect of the last move.
func (e *exchange) tune(slow, fast int, imbalance int64, most int) {
	switch {
	case slow == e.fast || fast == e.slow:
		e.count, e.window = max(1, e.count/2), min(maxWindow, e.window+1)
	case imbalance > tuneBelow:
		e.count, e.window = min(most, e.count*2), firstWindow
	}
}
