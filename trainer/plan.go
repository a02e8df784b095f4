package trainer

import "github.com/elrun/elrun/trainer/exact"

// plan says which samples each step has. It is pure: the same at every peer, at
// any time.
type plan struct {
	samples int // of a pass
	global  int // of a step
	micro   int
	perPass int64 // steps of a pass
	steps   int64 // of the job
	seed    uint64
}

// newPlan makes the plan of a configuration with its defaults filled in.
func newPlan(c Config) plan {
	p := plan{samples: c.Samples, global: c.GlobalBatch, micro: c.Microbatch, steps: c.Steps, seed: c.Seed}
	p.perPass = int64(ceilDiv(c.Samples, c.GlobalBatch))
	if c.Passes > 0 {
		p.steps = p.perPass * int64(c.Passes)
	}
	return p
}

// mostMicrobatches is how many a full step has.
func (p plan) mostMicrobatches() int { return ceilDiv(min(p.global, p.samples), p.micro) }

// stepPlan is the part of the plan for one step: the positions [first, end) in the
// order of the pass, cut into microbatches of which the last may be short.
type stepPlan struct {
	step         int64 // from 1
	order        permutation
	first, end   int
	micro        int
	microbatches int
}

// step returns the plan of step s >= 1, which may lie behind the end of the job.
func (p plan) step(s int64) stepPlan {
	pass, within := (s-1)/p.perPass, (s-1)%p.perPass
	first := int(within) * p.global
	end := min(first+p.global, p.samples)
	return stepPlan{step: s, order: newPermutation(p.seed, pass, p.samples), first: first, end: end,
		micro: p.micro, microbatches: ceilDiv(end-first, p.micro)}
}

// appendSamples appends the indices of the samples of microbatch k to dst.
func (s stepPlan) appendSamples(dst []int, k int) []int {
	first := s.first + k*s.micro
	for i := first; i < min(first+s.micro, s.end); i++ {
		dst = append(dst, s.order.at(i))
	}
	return dst
}

// samplesOf returns the indices of the samples of each of some microbatches.
func (s stepPlan) samplesOf(micros []int) (samples [][]int) {
	for _, k := range micros {
		samples = append(samples, s.appendSamples(nil, k))
	}
	return samples
}

// samplesIn returns how many samples microbatches have, given as [first, end) pairs.
func (s stepPlan) samplesIn(ranges [][2]int) int {
	n := 0
	for _, r := range ranges {
		n += min(s.first+r[1]*s.micro, s.end) - (s.first + r[0]*s.micro)
	}
	return n
}

// scale restores the scale of exact mode that has these exponents; the zero value without any,
// as other modes have none.
func (p plan) scale(exponents []int8) (exact.Scale, error) {
	if len(exponents) == 0 {
		return exact.Scale{}, nil
	}
	return exact.Restore(exponents, p.mostMicrobatches())
}

// after returns how many microbatches the step after one has; none after the last.
func (p plan) after(step int64) int {
	if step >= p.steps {
		return 0
	}
	return p.step(step + 1).microbatches
}

// ceilDiv divides and rounds up; a >= 0, b > 0.
func ceilDiv(a, b int) int { return (a + b - 1) / b }
