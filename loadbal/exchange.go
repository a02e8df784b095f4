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
func (x *exchange) Begin(speeds []int64) {
	x.table.Begin(speeds)
	x.times = make([]medianFilter, len(speeds))
	x.window, x.count, x.slow, x.fast = firstWindow, 0, -1, -1
}

// Next implements Policy. It computes the first shares of a session, and the shares for another
// number of microbatches, as if the costs were linear. A move takes at most a quarter of an average
// share, or one microbatch, so that one wrong measurement changes little.
func (x *exchange) Next(reports []Report, microbatches int) ([]int, string) {
	x.setBounds(reports)
	for r, report := range reports {
		if t, ok := report.measured(); ok {
			x.times[r].Add(t)
			x.costs[r].Each, x.known = max(1, x.times[r].Value()/int64(report.Share)), true
		}
	}
	best := x.solve(microbatches)
	most := max(1, microbatches/len(x.costs)/4)
	if x.needsNewShares(microbatches) {
		x.count, x.untilMove = most, x.window
		return x.set(best)
	}
	if x.untilMove--; x.untilMove > 0 {
		return x.set(x.shares)
	}
	slow, fast, imbalance := x.extremes()
	x.tune(slow, fast, imbalance, most)
	x.untilMove = x.window
	if imbalance < balancedBelow {
		return x.set(x.shares)
	}
	x.slow, x.fast = slow, fast
	for r := range x.times {
		x.times[r] = medianFilter{}
	}
	return x.set(x.moved(slow, fast, x.count))
}

// tune adapts the size of a move and the window to the effect of the last move.
func (x *exchange) tune(slow, fast int, imbalance int64, most int) {
	switch {
	case slow == x.fast || fast == x.slow:
		x.count, x.window = max(1, x.count/2), min(maxWindow, x.window+1)
	case imbalance > tuneBelow:
		x.count, x.window = min(most, x.count*2), firstWindow
	}
}
