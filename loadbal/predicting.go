package loadbal

// settling is how many steps after a jump shares are set more exactly.
const settling = 6

// predicting predicts each rank's pace for the next step and solves for the shares:
// LB-BSP for processors. Other than there, the part of the time that does not depend
// on the share is learned and set apart, and shares are kept where others would hardly
// be better, for the measured times are never quite the same.
type predicting struct {
	table
	ahead  forecaster
	fixed  []fixedPart
	last   []int64 // paces measured last
	settle int     // steps still to go
}

func (p *predicting) Begin(speeds []int64) {
	p.table.Begin(speeds)
	p.fixed, p.settle = make([]fixedPart, len(speeds)), 0
	p.last = make([]int64, len(speeds))
	p.ahead.begin(p.paces())
}

func (p *predicting) Next(reports []Report, microbatches int) ([]int, string) {
	p.take(reports)
	p.settle = max(0, p.settle-1)
	if reports != nil {
		p.measure(reports)
	}
	best := Optimum(p.costs, microbatches)
	if !p.first(microbatches) && !p.worth(best) {
		best = p.shares
	}
	return p.set(best)
}

// measure takes in the reports and makes the costs those of the next step.
func (p *predicting) measure(reports []Report) {
	paces := make([]int64, len(reports))
	for r, report := range reports {
		t, ok := report.measured()
		if !ok {
			continue
		}
		paces[r] = p.learn(r, report.Share, t)
	}
	if p.ahead.observe(paces) {
		p.settle = settling
	}
	for r, pace := range p.ahead.next() {
		p.costs[r].Each = pace
		p.costs[r].Fixed = p.fixed[r].parts * pace / fixedUnit
	}
	p.complete()
}

// learn takes in what a share took a rank, and returns its pace. Where the forecast had
// been that the pace changes, the share was made such that the time stays the same; that
// must not be taken for a time that does not depend on the share.
func (p *predicting) learn(rank, share int, ticks int64) (pace int64) {
	f := &p.fixed[rank]
	if !near(max(1, p.last[rank]), p.costs[rank].Each, unit/4) {
		f.lastShare = 0
	}
	before := f.pace(share, ticks)
	if f.observe(share, ticks) {
		p.ahead.rescale(rank, f.pace(share, ticks), before)
	}
	p.last[rank] = f.pace(share, ticks)
	return p.last[rank]
}

// worth reports whether the step would get shorter by best by more than can be noise.
// The slowest of many ranks is a few deviations above the mean. For a while after a
// jump less is enough, so that not only the worst is put right.
func (p *predicting) worth(best []int) bool {
	now, then := Slowest(p.costs, p.shares), Slowest(p.costs, best)
	least := max(unit/64, p.ahead.noise()*5/2)
	if p.settle > 0 {
		least = max(unit/256, p.ahead.noise())
	}
	return quotient(now-then, then) > least
}
