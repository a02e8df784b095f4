package loadbal

import (
	"math/bits"
	"slices"
)

// settlePeriod is how many steps after a jump shares are set more exactly.
const settlePeriod = 3

// predicting predicts each rank's pace for the next step and solves for the shares:
// LB-BSP for processors. Other than there, the part of the time that does not depend
// on the share is learned and set apart, forecasts are given up for the mean where they
// were worse, and shares are kept where others would hardly be better, for the measured
// times are never quite the same.
type predicting struct {
	table
	forecaster  forecaster
	score       forecastScore
	stuck       stuckDetector
	fixed       []fixedPart
	last        []int64 // paces measured last
	noise       int64   // of the paces, as the forecaster sees it
	settleSteps int     // steps of settling still to go
	steps       int     // that were measured
}

func (p *predicting) Begin(speeds []int64) {
	p.table.Begin(speeds)
	p.fixed, p.settleSteps, p.steps = make([]fixedPart, len(speeds)), 0, 0
	p.last = make([]int64, len(speeds))
	p.forecaster.begin(p.paces())
	p.noise = p.forecaster.noise()
	p.score.begin(len(speeds))
	p.stuck = stuckDetector{}
}

func (p *predicting) Next(reports []Report, microbatches int) ([]int, string) {
	p.setBounds(reports)
	p.settleSteps = max(0, p.settleSteps-1)
	if reports != nil {
		p.measure(reports)
	}
	best, eagerly := p.choose(microbatches)
	p.restoreShares(microbatches)
	switch {
	case p.needsNewShares(microbatches):
	case p.improves(best, eagerly):
		if p.settleSteps == 0 && eagerly {
			p.settleSteps = settlePeriod
		}
	default:
		best = p.shares
	}
	return p.set(best)
}

// measure takes in the reports and makes the costs those of the next step.
func (p *predicting) measure(reports []Report) {
	p.steps++
	paces := make([]int64, len(reports))
	for r, report := range reports {
		t, ok := report.measured()
		if !ok {
			continue
		}
		paces[r] = p.learn(r, report.Share, t)
	}
	if r := p.stuck.observe(reports, p.fixed, p.costs); r >= 0 {
		paces[r] = p.forget(r, reports[r])
	}
	p.score.observe(paces, p.fixed)
	if p.forecaster.observe(paces) {
		p.settleSteps = settlePeriod
	}
	p.noise = p.forecaster.noise()
	for r, pace := range p.forecaster.next() {
		p.costs[r].Each = pace
		p.costs[r].Fixed = p.fixed[r].ticks(pace)
	}
	p.complete()
}

// choose solves for the shares, by the forecast or by the means. The costs are those of
// what was chosen.
func (p *predicting) choose(microbatches int) (best []int, eagerly bool) {
	t := &p.score
	t.forecastShares = p.solve(microbatches)
	ahead := slices.Clone(p.costs)
	for r, pace := range t.shrunkMeans(p.noise) {
		if pace > 0 {
			p.costs[r].Each, p.costs[r].Fixed = pace, p.fixed[r].ticks(pace)
		}
	}
	t.meanShares = p.solve(microbatches)
	if t.followForecast(p.settleSteps > 0) {
		p.costs = ahead
		return t.forecastShares, true
	}
	return t.meanShares, false
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
	if f.observe(share, ticks, p.noise) {
		p.forecaster.rescale(rank, f.pace(share, ticks), before)
		p.score.rescale(rank, f.pace(share, ticks), before)
	}
	p.last[rank] = f.pace(share, ticks)
	return p.last[rank]
}

// forget takes the whole time of a rank for one that depends on the share, and returns its
// pace.
func (p *predicting) forget(rank int, report Report) (pace int64) {
	f := &p.fixed[rank]
	t, _ := report.measured()
	before := f.pace(report.Share, t)
	f.num, f.den, f.parts = 0, 0, 0
	p.last[rank] = f.pace(report.Share, t)
	p.forecaster.rescale(rank, p.last[rank], before)
	p.score.rescale(rank, p.last[rank], before)
	return p.last[rank]
}

// improves reports whether the step would get shorter by best by more than can be noise.
// The slowest of many ranks is a few deviations above the mean, the more the more ranks
// there are. For a while after a jump or a change less is enough, so that not only the
// worst is put right. So it is where means are followed, which have less noise the older
// they are. In the first steps more is needed: the noise is not known yet.
func (p *predicting) improves(best []int, eagerly bool) bool {
	now, then := Slowest(p.costs, p.shares), Slowest(p.costs, best)
	least := max(unit/64, p.noise*int64(bits.Len(uint(len(best)))+7)/4)
	switch {
	case !eagerly:
		least = max(unit/64, p.noise/2, least/(1+p.score.age/8))
	case p.settleSteps > 0:
		least = max(unit/256, p.noise)
	}
	least = max(least, unit/4>>min(p.steps, 16))
	return quotient(now-then, then) > least
}
