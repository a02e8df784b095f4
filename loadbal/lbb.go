package loadbal

// Parameters of lbb. The imbalance is (longest - shortest) / mean of the times, in parts of
// unit. Below holdBelow the shares stay. From holdBelow to tuneBelow one microbatch is moved. From
// tuneBelow on, Optimum computes new shares; in the next tuneSteps steps only single microbatches
// are moved.
const (
	holdBelow = unit / 20
	tuneBelow = unit * 3 / 10
	tuneSteps = 5
)

// lbb is the policy LBB (load-balanced batching). It keeps the shares if the imbalance is small.
// If the imbalance is moderate, it moves one microbatch from the slowest to the fastest rank.
// Otherwise it computes the optimal shares for the costs of the last measurement.
type lbb struct {
	table
	fixed    []fixedPart
	tuneOnly int // remaining steps in which only single microbatches are moved
}

// Begin implements Policy.
func (l *lbb) Begin(speeds []int64) {
	l.table.Begin(speeds)
	l.fixed, l.tuneOnly = make([]fixedPart, len(speeds)), 0
}

// Next implements Policy.
func (l *lbb) Next(reports []Report, microbatches int) ([]int, string) {
	l.setBounds(reports)
	for r, report := range reports {
		if ticks, ok := report.measured(); ok {
			f := &l.fixed[r]
			f.observe(report.Share, ticks, defaultNoise)
			l.costs[r].Each = f.pace(report.Share, ticks)
			l.costs[r].Fixed = f.ticks(l.costs[r].Each)
			l.known = true
		}
	}
	l.tuneOnly = max(0, l.tuneOnly-1)
	best := l.solve(microbatches)
	if l.needsNewShares(microbatches) {
		return l.set(best)
	}
	slow, fast, imbalance := l.extremes()
	switch {
	case imbalance < holdBelow:
		return l.set(l.shares)
	case imbalance < tuneBelow || l.tuneOnly > 0:
		return l.set(l.moved(slow, fast, 1))
	}
	l.tuneOnly = tuneSteps
	return l.set(best)
}
