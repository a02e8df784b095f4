package loadbal

// equal gives all ranks the same, within their bounds.
type equal struct{ table }

func (e *equal) Next(reports []Report, microbatches int) ([]int, string) {
	e.take(reports)
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
	meters []meter
}

func (p *proportional) Begin(speeds []int64) {
	p.table.Begin(speeds)
	p.meters = make([]meter, len(speeds))
}

func (p *proportional) Next(reports []Report, microbatches int) ([]int, string) {
	p.take(reports)
	for r, report := range reports {
		if t, ok := report.measured(); ok {
			p.meters[r].Add(max(1, t/int64(report.Share)))
			p.costs[r].Each, p.known = p.meters[r].Value(), true
		}
	}
	return p.set(p.solve(microbatches))
}
