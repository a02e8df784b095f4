package balsim

import (
	"slices"

	"github.com/elrun/elrun/loadbal"
)

// Run is what happened in a simulation. All is by step, Shares and Times by peer as
// well; times are in nanoseconds.
type Run struct {
	Shares   [][]int
	Times    [][]int64
	Took     []int64 // of the slowest peer
	Best     []int64 // what Took would have been with the shares of foresight
	Forecast [][]int64
	Whys     []string
}

// Simulate lets a policy share out all steps of a trace, telling it only the times that
// were. Beside it, it computes what foresight would have reached: a policy that knows
// each peer's costs in the step to come, and has for these the best whole shares. That
// policy does not know the noise, which disturbs it in the same way.
func Simulate(t *Trace, policy loadbal.Policy) *Run {
	run := new(Run)
	policy.Begin(make([]int64, t.Peers()))
	var reports []loadbal.Report
	for s := range t.Pace {
		shares, why := policy.Next(reports, t.Microbatches)
		noise := t.noise(s)
		times := t.times(s, shares, noise)
		reports = make([]loadbal.Report, len(shares))
		for p, b := range shares {
			reports[p] = loadbal.Report{Share: b, Micros: times[p] / 1000}
		}
		run.Shares, run.Times = append(run.Shares, shares), append(run.Times, times)
		run.Took = append(run.Took, slices.Max(times))
		run.Best = append(run.Best, slices.Max(t.times(s, t.Foresight(s), noise)))
		run.Forecast, run.Whys = append(run.Forecast, policy.Forecast()), append(run.Whys, why)
	}
	return run
}

// times is what shares take in a step. noise is that of the peers, nil for none.
func (t *Trace) times(step int, shares []int, noise []int64) []int64 {
	times, costs := make([]int64, len(shares)), t.costs(step)
	for p, b := range shares {
		times[p] = costs[p].Time(b)
		if t.Tau != nil {
			times[p] = max(times[p], t.Tau[p])
		}
		if noise != nil {
			times[p] += times[p] / 1000 * noise[p] / 1000
		}
		times[p] = max(times[p], 1000)
	}
	return times
}

// noise is by how much each peer's time is disturbed in a step, in parts of a million.
func (t *Trace) noise(step int) []int64 {
	if t.Noise == 0 {
		return nil
	}
	all := make([]int64, t.Peers())
	for p := range all {
		all[p] = t.Noise * normal(10, t.Seed, p, step)
	}
	return all
}

// costs are the true costs of a step.
func (t *Trace) costs(step int) []loadbal.Cost {
	costs := make([]loadbal.Cost, t.Peers())
	for p, pace := range t.Pace[step] {
		costs[p] = loadbal.Cost{Each: pace, Min: 1}
		if t.Fixed != nil {
			costs[p].Fixed = t.Fixed[p]
		}
	}
	return costs
}

// Foresight returns the best shares for a step. That below Tau more costs nothing does
// not make others better: the step takes as long as the longest Tau in any case.
func (t *Trace) Foresight(step int) []int { return loadbal.Optimum(t.costs(step), t.Microbatches) }

// Efficiency is how much of the speed that foresight reaches the policy reached over the
// whole run, in parts of a thousand.
func (r *Run) Efficiency() int64 {
	var took, best int64
	for s := range r.Took {
		took, best = took+r.Took[s], best+r.Best[s]
	}
	return best * 1000 / took
}

// Changes is the number of steps after from that had other shares than the step before.
func (r *Run) Changes(from int) int {
	n := 0
	for s := max(1, from); s < len(r.Shares); s++ {
		if !slices.Equal(r.Shares[s], r.Shares[s-1]) {
			n++
		}
	}
	return n
}

// Spread is (longest - shortest) / mean of times, in parts of a thousand.
func Spread(times []int64) int64 {
	var sum int64
	for _, t := range times {
		sum += t
	}
	return (slices.Max(times) - slices.Min(times)) * 1000 * int64(len(times)) / sum
}

// Excess is by how much the Spread of what shares would take in a step without noise is
// above that of the best shares, in parts of a thousand.
func (t *Trace) Excess(step int, shares []int) int64 {
	return Spread(t.times(step, shares, nil)) - Spread(t.times(step, t.Foresight(step), nil))
}

// Miss is how far forecasts of a rank's time were from the time itself, relative to it,
// in the mean over all ranks and the steps after from, in parts of a thousand.
func (r *Run) Miss(from int) int64 {
	var sum, n int64
	for s := from; s < len(r.Times); s++ {
		for p, t := range r.Times[s] {
			sum += max(t-1000*r.Forecast[s][p], 1000*r.Forecast[s][p]-t) * 1000 / t
			n++
		}
	}
	return sum / max(1, n)
}
