package loadbal

// Parameters of exchange.
const (
	firstWindow = 2 // steps between moves, at first
	maxWindow   = 16
	// balancedBelow is the imbalance that is left alone, in parts of unit.
	balancedBelow = unit / 20
)

// exchange is LB-BSP for accelerators, whose time is t(b) = max(tau, a + c*b): below
// some share more microbatches cost nothing. No speed can be told from such a time. So
// it looks at times only: after each window of steps it moves some microbatches from
// the slowest to the fastest rank. If two then change places, it went too far: the
// number is halved and the window gets longer. If the slowest stays the slowest by far,
// the number is doubled again.
type exchange struct {
	table
	times      []medianFilter
	untilMove  int // steps of the window still to go
	window     int
	count      int // microbatches that are moved at once
	slow, fast int // ranks of the last move, -1 before the first
}

func (x *exchange) Begin(speeds []int64) {
	x.table.Begin(speeds)
	x.times = make([]medianFilter, len(speeds))
	x.window, x.count, x.slow, x.fast = firstWindow, 0, -1, -1
}

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

// tune adapts the number and the window to what the last move did.
func (x *exchange) tune(slow, fast int, imbalance int64, most int) {
	switch {
	case slow == x.fast || fast == x.slow:
		x.count, x.window = max(1, x.count/2), min(maxWindow, x.window+1)
	case imbalance > tuneBelow:
		x.count, x.window = min(most, x.count*2), firstWindow
	}
}
