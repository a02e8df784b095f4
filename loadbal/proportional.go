package loadbal

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
