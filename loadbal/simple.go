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
	same := make([]Cost, len(e.costs))
	for r, c := range e.costs {
		same[r] = Cost{Each: 1, Min: c.Min, Max: c.Max}
	}
	e.solve(microbatches) // only to bound the costs: its shares are not used
	return e.set(Optimum(same, microbatches))
}

// proportional gives each rank a share in proportion to its speed: the median of the last few
// steps. It assumes that the whole time of a step depends on the share, without a fixed part.
type proportional struct {
	table
	medians []medianFilter
}

// Begin implements Policy.
func (p *proportional) Begin(speeds []int64) {
	p.table.Begin(speeds)
	p.medians = make([]medianFilter, len(speeds))
}

// Next implements Policy.
func (p *proportional) Next(reports []Report, microbatches int) ([]int, string) {
	p.setBounds(reports)
	for r, report := range reports {
		if t, ok := report.measured(); ok {
			p.medians[r].Add(max(1, t/int64(report.Share)))
			p.costs[r].Each, p.known = p.medians[r].Value(), true
		}
	}
	return p.set(p.solve(microbatches))
}
