package balsim

import (
	"slices"

	"github.com/elrun/elrun/loadbal"
)

// Run is the record of a simulation. All slices are indexed by step; Shares, Times and Forecast
// also by peer. Times are in nanoseconds.
type Run struct {
	Shares   [][]int
	Times    [][]int64
	Took     []int64 // time of the slowest peer
	Best     []int64 // what Took would be with the shares of Foresight
	Forecast [][]int64
	Whys     []string
	Stolen   []int // microbatches that peers took from each other in the step; nil without stealing
}

// Simulate lets a policy assign the shares of all steps of a trace. The policy only gets the times
// of past steps. For comparison it also computes the times with foresight: an oracle that knows
// each peer's costs in the next step and chooses the best whole shares. The oracle does not know
// the noise, which affects its times in the same way.
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

// times returns the peers' times for shares in a step. noise is the peers' noise; nil for none.
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

// noise returns the disturbance of each peer's time in a step, in parts per million.
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

// costs returns the true costs of a step.
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

// Foresight returns the best shares for a step. It ignores Tau. A peer computes some microbatches
// within Tau without extra time, but no other shares are better for this reason, because a step
// takes at least the largest Tau.
func (t *Trace) Foresight(step int) []int { return loadbal.Optimum(t.costs(step), t.Microbatches) }

// Efficiency returns the speed over the whole run in relation to the speed with foresight, in
// thousandths.
func (r *Run) Efficiency() int64 {
	var took, best int64
	for s := range r.Took {
		took, best = took+r.Took[s], best+r.Best[s]
	}
	return best * 1000 / took
}

// Changes returns the number of steps, from step from on, whose shares differ from the step
// before.
func (r *Run) Changes(from int) int {
	n := 0
	for s := max(1, from); s < len(r.Shares); s++ {
		if !slices.Equal(r.Shares[s], r.Shares[s-1]) {
			n++
		}
	}
	return n
}

// Spread returns (longest - shortest) / mean of times, in thousandths.
func Spread(times []int64) int64 {
	var sum int64
	for _, t := range times {
		sum += t
	}
	return (slices.Max(times) - slices.Min(times)) * 1000 * int64(len(times)) / sum
}

// Moved returns the stolen microbatches in thousandths of all microbatches of the run.
func (r *Run) Moved() int64 {
	var stolen, all int64
	for s, shares := range r.Shares {
		for _, b := range shares {
			all += int64(b)
		}
		stolen += int64(r.Stolen[s])
	}
	return stolen * 1000 / all
}

// Excess returns by how much the Spread of the noise-free times with these shares exceeds the Spread with the best shares, in
// thousandths.
func (t *Trace) Excess(step int, shares []int) int64 {
	return Spread(t.times(step, shares, nil)) - Spread(t.times(step, t.Foresight(step), nil))
}

// Miss returns the mean relative error of the forecasts, in thousandths, over all ranks and all
// steps from step from on.
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
