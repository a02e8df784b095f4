package loadbal

import (
	"math/bits"
	"slices"
)

// settlePeriod is the number of steps after a jump in which even small improvements change the
// shares.
const settlePeriod = 3

// predicting is LB-BSP for processors: it predicts each rank's pace in the next step and computes
// the best shares. C. Chen, Q. Weng, W. Wang, B. Li and B. Li, "Semi-dynamic load balancing:
// efficient distributed learning in non-dedicated environments", ACM SoCC 2020.
//
// It differs from the paper in four ways, because measured times vary even if the speed does not:
//
//	fixedPart       separates the part of the time that does not depend on the share
//	forecastScore   uses the mean of many steps where forecasts were worse
//	improves        keeps the shares if better ones would hardly shorten the step (hysteresis)
//	evidence        tests whether times follow shares that are far from equal ones
type predicting struct {
	table
	forecaster  forecaster
	score       forecastScore
	stuck       stuckDetector
	fixed       []fixedPart
	last        []int64  // last measured pace, by rank
	noise       int64    // the forecaster's estimate of the relative error of the paces, times unit
	settleSteps int      // remaining steps of the settlePeriod
	steps       int      // number of steps with reports
	evidence    evidence // whether the shares may be far from equal ones
}

// Begin implements Policy.
func (p *predicting) Begin(speeds []int64) {
	p.table.Begin(speeds)
	p.fixed, p.settleSteps, p.steps = make([]fixedPart, len(speeds)), 0, 0
	p.last = make([]int64, len(speeds))
	p.forecaster.begin(p.paces())
	p.noise = p.forecaster.noise()
	p.score.begin(len(speeds))
	p.stuck = stuckDetector{}
	p.evidence = evidence{}
}

// Next implements Policy. It keeps the present shares unless they are invalid, or other shares
// shorten the step by enough, or times may not follow shares.
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
	if reports == nil {
		return p.set(best)
	}
	shares, why := p.set(p.evidence.limit(p.costs, best, p.noise))
	if total(p.evidence.base) == microbatches { // the shares of a test are not a decision of the policy
		p.shares = p.evidence.base
	}
	return shares, why
}

// measure updates the fixed parts, the score and the forecaster by the reports, and sets the costs
// to the forecast of the next step.
func (p *predicting) measure(reports []Report) {
	p.steps++
	p.evidence.observe(reports, p.noise)
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

// choose returns the best shares, by the forecast or by the means. The result eagerly is true if
// best follows the forecast. choose sets p.costs to the costs that it used.
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

// learn records that a share took the given ticks, and returns the pace. A pair of steps is left
// out if a change of the pace was forecast between them. In that case the second share was chosen
// so that the time stays the same, and different shares with equal times would look like a fixed
// part that does not exist.
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

// forget sets the fixed part of a rank to 0 and returns the pace of the report under this
// assumption.
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

// improves reports whether best shortens the step by more than noise could. The threshold is a
// hysteresis against changes of the shares by chance:
//
//	in general           a multiple of the noise that grows with the logarithm of the number of
//	                     ranks, as the slowest of many ranks is some deviations above the mean
//	after a jump         the noise alone, for settlePeriod steps, so that the new shares become exact
//	by the means         decreases with the number of recorded steps, as the noise of a mean does
//	in the first steps   more, as the noise is not yet known
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
