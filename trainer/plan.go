package trainer

import "github.com/elrun/elrun/trainer/exact"

// plan maps steps to samples. It is a pure function of the configuration: the same at every peer,
// at any time.
type plan struct {
	samples int   // per pass
	global  int   // samples per step
	micro   int   // samples per microbatch
	perPass int64 // steps per pass
	steps   int64 // steps of the whole job
	// seed is the seed of the sample order.
	seed uint64
}

// newPlan returns the plan of a configuration whose defaults are filled in.
func newPlan(c Config) plan {
	p := plan{samples: c.Samples, global: c.GlobalBatch, micro: c.Microbatch, steps: c.Steps, seed: c.Seed}
	p.perPass = int64(ceilDiv(c.Samples, c.GlobalBatch))
	if c.Passes > 0 {
		p.steps = p.perPass * int64(c.Passes)
	}
	return p
}

// mostMicrobatches returns the number of microbatches of a full step.
func (p plan) mostMicrobatches() int { return ceilDiv(min(p.global, p.samples), p.micro) }

// stepPlan is the plan of one step: the positions [first, end) in the sample order of its pass,
// divided into microbatches. The last microbatch may be short.
type stepPlan struct {
	step int64 // from 1
	// order is the permutation of the samples in this pass.
	order      permutation
	first, end int // positions in the pass
	micro      int // samples per microbatch
	// microbatches is the number of microbatches in the step.
	microbatches int
}

// step returns the plan of step s >= 1, which may be after the last step of the job.
func (p plan) step(s int64) stepPlan {
	pass, within := (s-1)/p.perPass, (s-1)%p.perPass
	first := int(within) * p.global
	end := min(first+p.global, p.samples)
	return stepPlan{step: s, order: newPermutation(p.seed, pass, p.samples), first: first, end: end,
		micro: p.micro, microbatches: ceilDiv(end-first, p.micro)}
}

// appendSamples appends the sample indices of microbatch k to dst.
func (s stepPlan) appendSamples(dst []int, k int) []int {
	first := s.first + k*s.micro
	for i := first; i < min(first+s.micro, s.end); i++ {
		dst = append(dst, s.order.at(i))
	}
	return dst
}

// samplesOf returns the sample indices of each of the given microbatches.
func (s stepPlan) samplesOf(micros []int) (samples [][]int) {
	for _, k := range micros {
		samples = append(samples, s.appendSamples(nil, k))
	}
	return samples
}

// samplesIn returns the number of samples of the microbatches in the given [first, end) ranges.
func (s stepPlan) samplesIn(ranges [][2]int) int {
	n := 0
	for _, r := range ranges {
		n += min(s.first+r[1]*s.micro, s.end) - (s.first + r[0]*s.micro)
	}
	return n
}

// scale restores the scale with the given exponents. Without exponents it returns the zero scale
// of the other modes.
func (p plan) scale(exponents []int8) (exact.Scale, error) {
	if len(exponents) == 0 {
		return exact.Scale{}, nil
	}
	return exact.Restore(exponents, p.mostMicrobatches())
}

// after returns the number of microbatches of the step after the given step; 0 after the last
// step.
func (p plan) after(step int64) int {
	if step >= p.steps {
		return 0
	}
	return p.step(step + 1).microbatches
}

// ceilDiv returns a/b rounded up; a >= 0, b > 0. Both must be small enough that a+b does not
// overflow.
func ceilDiv(a, b int) int { return (a + b - 1) / b }
