package loadbal

import (
	"math/bits"
	"slices"
)

// settlePeriod is the number of steps after a jump in which even small improvements change the
// shares.
const settlePeriod = 3

// lbbspCPU is LB-BSP for processors: it predicts each rank's pace in the next step and computes
// the best shares. C. Chen, Q. Weng, W. Wang, B. Li and B. Li, "Semi-dynamic load balancing:
// efficient distributed learning in non-dedicated environments", ACM SoCC 2020.
//
// It differs from the paper in four ways, because measured times vary even if the speed does not:
//
//	fixedPart       separates the part of the time that does not depend on the share
//	forecastScore   uses the mean of many steps where forecasts were worse
//	improves        keeps the shares if better ones would hardly shorten the step (hysteresis)
//	evidence        tests whether times follow shares that are far from equal ones
type lbbspCPU struct {
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
func (l *lbbspCPU) Begin(speeds []int64) {
	l.table.Begin(speeds)
	l.fixed, l.settleSteps, l.steps = make([]fixedPart, len(speeds)), 0, 0
	l.last = make([]int64, len(speeds))
	l.forecaster.begin(l.paces())
	l.noise = l.forecaster.noise()
	l.score.begin(len(speeds))
	l.stuck = stuckDetector{}
	l.evidence = evidence{}
}

// Next implements Policy. It keeps the present shares unless they are invalid, or other shares
// shorten the step by enough, or times may not follow shares.
func (l *lbbspCPU) Next(reports []Report, microbatches int) ([]int, string) {
	l.setBounds(reports)
	l.settleSteps = max(0, l.settleSteps-1)
	if reports != nil {
		l.measure(reports)
	}
	best, eagerly := l.choose(microbatches)
	l.restoreShares(microbatches)
	switch {
	case l.needsNewShares(microbatches):
	case l.improves(best, eagerly):
		if l.settleSteps == 0 && eagerly {
			l.settleSteps = settlePeriod
		}
	default:
		best = l.shares
	}
	if reports == nil {
		return l.set(best)
	}
	shares, why := l.set(l.evidence.limit(l.costs, best, l.noise))
	if total(l.evidence.base) == microbatches { // the shares of a test are not a decision of the policy
		l.shares = l.evidence.base
	}
	return shares, why
}

// measure updates the fixed parts, the score and the forecaster by the reports, and sets the costs
// to the forecast of the next step.
func (l *lbbspCPU) measure(reports []Report) {
	l.steps++
	l.evidence.observe(reports, l.noise)
	paces := make([]int64, len(reports))
	for r, report := range reports {
		t, ok := report.measured()
		if !ok {
			continue
		}
		paces[r] = l.learn(r, report.Share, t)
	}
	if r := l.stuck.observe(reports, l.fixed, l.costs); r >= 0 {
		paces[r] = l.forget(r, reports[r])
	}
	l.score.observe(paces, l.fixed)
	if l.forecaster.observe(paces) {
		l.settleSteps = settlePeriod
	}
	l.noise = l.forecaster.noise()
	for r, pace := range l.forecaster.next() {
		l.costs[r].Each = pace
		l.costs[r].Fixed = l.fixed[r].ticks(pace)
	}
	l.complete()
}

// choose returns the best shares, by the forecast or by the means. The result eagerly is true if
// best follows the forecast. choose sets l.costs to the costs that it used.
func (l *lbbspCPU) choose(microbatches int) (best []int, eagerly bool) {
	t := &l.score
	t.forecastShares = l.solve(microbatches)
	ahead := slices.Clone(l.costs)
	for r, pace := range t.shrunkMeans(l.noise) {
		if pace > 0 {
			l.costs[r].Each, l.costs[r].Fixed = pace, l.fixed[r].ticks(pace)
		}
	}
	t.meanShares = l.solve(microbatches)
	if t.followForecast(l.settleSteps > 0) {
		l.costs = ahead
		return t.forecastShares, true
	}
	return t.meanShares, false
}

// learn records that a share took the given ticks, and returns the pace. A pair of steps is left
// out if a change of the pace was forecast between them. In that case the second share was chosen
// so that the time stays the same, and different shares with equal times would look like a fixed
// part that does not exist.
func (l *lbbspCPU) learn(rank, share int, ticks int64) (pace int64) {
	f := &l.fixed[rank]
	if !near(max(1, l.last[rank]), l.costs[rank].Each, unit/4) {
		f.lastShare = 0
	}
	before := f.pace(share, ticks)
	if f.observe(share, ticks, l.noise) {
		l.forecaster.rescale(rank, f.pace(share, ticks), before)
		l.score.rescale(rank, f.pace(share, ticks), before)
	}
	l.last[rank] = f.pace(share, ticks)
	return l.last[rank]
}

// forget sets the fixed part of a rank to 0 and returns the pace of the report under this
// assumption.
func (l *lbbspCPU) forget(rank int, report Report) (pace int64) {
	f := &l.fixed[rank]
	t, _ := report.measured()
	before := f.pace(report.Share, t)
	f.num, f.den, f.parts = 0, 0, 0
	l.last[rank] = f.pace(report.Share, t)
	l.forecaster.rescale(rank, l.last[rank], before)
	l.score.rescale(rank, l.last[rank], before)
	return l.last[rank]
}

// improves reports whether best shortens the step by more than noise could. The threshold is a
// hysteresis against changes of the shares by chance:
//
//	in general           a multiple of the noise that grows with the logarithm of the number of
//	                     ranks, as the slowest of many ranks is some deviations above the mean
//	after a jump         the noise alone, for settlePeriod steps, so that the new shares become exact
//	by the means         decreases with the number of recorded steps, as the noise of a mean does
//	in the first steps   more, as the noise is not yet known
func (l *lbbspCPU) improves(best []int, eagerly bool) bool {
	now, then := Slowest(l.costs, l.shares), Slowest(l.costs, best)
	least := max(unit/64, l.noise*int64(bits.Len(uint(len(best)))+7)/4)
	switch {
	case !eagerly:
		least = max(unit/64, l.noise/2, least/(1+l.score.age/8))
	case l.settleSteps > 0:
		least = max(unit/256, l.noise)
	}
	least = max(least, unit/4>>min(l.steps, 16))
	return quotient(now-then, then) > least
}
