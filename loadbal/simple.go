package loadbal

// equal gives all ranks the same, within their bounds.
type equal struct{ table }

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
	e.solve(microbatches) // for the bounds
	return e.set(Optimum(same, microbatches))
}

// proportional gives each rank a share in proportion to the speed that was measured,
// the median of a few steps. It takes all of a step's time to depend on the share.
type proportional struct {
	table
	medians []medianFilter
}

func (p *proportional) Begin(speeds []int64) {
	p.table.Begin(speeds)
	p.medians = make([]medianFilter, len(speeds))
}

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
