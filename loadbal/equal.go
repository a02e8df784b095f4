package loadbal

// equal gives all ranks the same share, within their bounds. It is the baseline without balancing.
// It still measures costs, for Forecast, Costs and the reason of a change.
type equal struct{ table }

// Next implements Policy.
func (e *equal) Next(reports []Report, microbatches int) ([]int, string) {
	e.setBounds(reports)
	for r, report := range reports {
		if t, ok := report.measured(); ok {
			e.costs[r].Each, e.known = max(1, t/int64(report.Share)), true
		}
	}
	e.solve(microbatches) // only to bound the costs: its shares are not used
	return e.set(equalShares(e.costs, microbatches))
}

// Settled implements Policy.
func (*equal) Settled(costs []Cost, microbatches int) []int { return equalShares(costs, microbatches) }
