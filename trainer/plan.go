package trainer

import (
	"math/bits"

	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/internal/growth"
)

// plan maps steps to samples. It is a pure function of the configuration and of the changes of the
// batch so far: the same at every peer.
type plan struct {
	samples int // per pass
	global  int // samples of a step before the batch has grown
	micro   int // samples per microbatch
	// perPass is the number of steps per pass, and steps that of the whole job, without growth.
	perPass, steps int64
	// seed is the seed of the sample order.
	seed uint64
	rule growth.Rule // by which the batch grows
	// grown says how the batch has grown so far. It belongs to the state, and all copies of the plan
	// share it; nil if the batch does not grow.
	grown *growth.State
}

// newPlan returns the plan of a configuration whose defaults are filled in.
func newPlan(c Config) plan {
	p := plan{samples: c.Samples, global: c.GlobalBatch, micro: c.Microbatch, steps: c.Steps, seed: c.Seed}
	p.perPass = int64(ceilDiv(c.Samples, c.GlobalBatch))
	if c.Passes > 0 {
		p.steps = p.perPass * int64(c.Passes)
	}
	if g := c.Growth; g.Max > 0 {
		p.rule = growth.Rule{First: c.GlobalBatch, Max: g.Max, Rate: g.Rate, Efficiency: g.Efficiency, Every: g.Every}
		p.grown = new(growth.State)
	}
	return p
}

// walk returns the walk through the changes of the batch that are known.
func (p plan) walk() growth.Walk {
	w := growth.Walk{Samples: p.samples, First: p.global}
	if p.grown != nil {
		w.Changes = p.grown.Changes
	}
	return w
}

// fullMicrobatches returns the number of microbatches of a full step with the batch of step s.
func (p plan) fullMicrobatches(s int64) int {
	return ceilDiv(min(p.walk().At(s).Batch, p.samples), p.micro)
}

// mostMicrobatches returns the number of microbatches of a full step with the largest batch.
func (p plan) mostMicrobatches() int {
	return ceilDiv(min(max(p.global, p.rule.Max), p.samples), p.micro)
}

// last returns the number of steps of the whole job, unless the batch grows further. With growth the
// job ends with the step that completes the samples that it would have without growth.
func (p plan) last() int64 {
	if p.grown == nil {
		return p.steps
	}
	return p.walk().Last(p.steps)
}

// scheduled returns the step for which the schedule is asked, and the factor of its rate: the step
// without growth in which the first sample of step s would be, and the gain of the batch.
func (p plan) scheduled(s int64) (step int64, gain float64) {
	if p.grown == nil {
		return s, 1
	}
	at := p.walk().Place(s)
	return at.Pass*p.perPass + int64(at.First/p.global) + 1, p.rule.Gain(p.walk().At(s))
}

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
	at, end := p.walk().Place(s), p.samples
	if batch := p.walk().At(s).Batch; batch < p.samples-at.First {
		end = at.First + batch
	}
	return stepPlan{step: s, order: newPermutation(p.seed, at.Pass, p.samples), first: at.First, end: end,
		micro: p.micro, microbatches: ceilDiv(end-at.First, p.micro)}
}

// endsPass reports whether step s is the last of its pass.
func (p plan) endsPass(s int64) bool { return p.step(s).end == p.samples }

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
	if step >= p.last() {
		return 0
	}
	return p.step(step + 1).microbatches
}

// ceilDiv returns a/b rounded up; a >= 0, b > 0. Both must be small enough that a+b does not
// overflow.
func ceilDiv(a, b int) int { return (a + b - 1) / b }

// permutation is the order of the samples in one pass: a permutation of [0, n). It is a pure
// function of seed and pass, with random access and without a table, so every peer can compute
// the samples of any microbatch of any step.
//
// It is a Feistel network on the smallest even number of bits that holds n-1, applied until the
// value falls below n: cycle walking (Black and Rogaway: Ciphers with arbitrary finite domains,
// 2002). The network permutes fewer than 4n values, so this takes fewer than 4 applications on
// average. Each walk ends, because the cycle returns to its first value, which is below n.
type permutation struct {
	n    uint64                // number of samples
	half uint                  // bits of each half
	keys [feistelRounds]uint64 // one per round
}

// feistelRounds exceeds the 4 rounds that make a Feistel network of random functions pseudorandom
// (Luby and Rackoff, 1988), because the round functions are simple and small domains need more rounds.
const feistelRounds = 7

// newPermutation returns the order of n >= 1 samples in a pass.
func newPermutation(seed uint64, pass int64, n int) permutation {
	o := permutation{n: uint64(n), half: uint(bits.Len64(uint64(n-1))+1) / 2}
	state := mix(seed) + uint64(pass)
	for i := range o.keys {
		state = mix(state + 0x9e3779b97f4a7c15)
		o.keys[i] = state
	}
	return o
}

// at returns the sample at position i of the pass, for i in [0, n).
func (p permutation) at(i int) int {
	v := p.permute(uint64(i))
	for v >= p.n {
		v = p.permute(v)
	}
	return int(v)
}

// permute is a bijection on the values of 2*half bits.
func (p permutation) permute(v uint64) uint64 {
	mask := uint64(1)<<p.half - 1
	left, right := v>>p.half, v&mask
	for _, k := range p.keys {
		left, right = right, left^(mix(right+k)&mask)
	}
	return left<<p.half | right
}

// mix is the output function of SplitMix64 (Steele, Lea and Flood, 2014), a bijection in which
// every bit of the result depends on every bit of v.
func mix(v uint64) uint64 {
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}
