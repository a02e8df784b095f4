package local

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/optim"
)

// path implements the Gradient of the wrapped model, and owns the work space. No result depends on
// an earlier call, because the inner optimizer starts each path with zero state.
type path struct {
	model      trainer.Model   // the model of ordinary training
	batch      int             // samples of a local step
	maxSamples int             // samples of a path
	bySpeed    bool            // a path has up to a round's samples, in any number of steps
	inner      optim.Optimizer // the inner optimizer
	// schedule gives the rates of the inner optimizer, by steps of ordinary training.
	schedule optim.Schedule
	clip     float64 // limit of the gradient's norm in a local step; 0 means no limit
	steps    stepMap

	start [][]float32 // parameters at the beginning of a path
	// grad is the gradient of one local step, as views of flat. Each view begins at a multiple of
	// exact.Alignment, which exact mode requires and which costs nothing otherwise.
	flat         []float32
	grad         [][]float32
	slots        [][][]float32 // state of inner, by parameter
	displacement [][][]float32 // by group and parameter: the sum of the displacements of the group's paths, times their samples
}

// newPath allocates the work space; cfg is the configuration of ordinary training. The work space
// has 12 bytes for each parameter, and the state of the inner optimizer: none for SGD, 4 bytes with
// momentum, 8 for Adam. Each further group of a batch adds 4 bytes.
func newPath(m trainer.Model, cfg trainer.Config, c Config) *path {
	p := &path{model: m, batch: cfg.Microbatch, maxSamples: cfg.Microbatch * c.Steps, bySpeed: c.BySpeed,
		inner: cfg.Optimizer, schedule: cfg.Schedule, clip: cfg.Gradients.Clip, steps: newStepMap(cfg, c.Steps)}
	if c.BySpeed {
		p.maxSamples = cfg.GlobalBatch * c.Steps
	}
	var sizes []int
	for _, param := range m.Params {
		n := len(param.Data)
		sizes = append(sizes, n)
		p.start = append(p.start, make([]float32, n))
		p.slots = append(p.slots, optim.NewState(p.inner, n))
	}
	p.flat, p.grad = exact.Views(sizes)
	p.reserve(1)
	return p
}

// reserve zeroes the displacements of the given number of groups, and allocates missing ones.
func (p *path) reserve(groups int) {
	for len(p.displacement) < groups {
		var one [][]float32
		for _, param := range p.model.Params {
			one = append(one, make([]float32, len(param.Data)))
		}
		p.displacement = append(p.displacement, one)
	}
	for _, one := range p.displacement[:groups] {
		for _, v := range one {
			clear(v)
		}
	}
}

// gradient implements Model.Gradient. It calls Grad only after all paths are computed, because with
// Delay the memory of gradients is in use until the sums of the previous round have arrived.
// gradient restores the parameters before it returns, also after an error or a panic. After an error
// no gradient of the batch has been written.
func (p *path) gradient(b *trainer.Batch) (loss float64, err error) {
	groups := b.Groups()
	p.reserve(len(groups))
	for i, param := range p.model.Params {
		b.Wait(i, 0)
		copy(p.start[i], param.Data)
	}
	for k, g := range groups {
		for samples := range slices.Chunk(g.Samples(), p.maxSamples) {
			loss, err := p.compute(b, samples, p.displacement[k])
			if err != nil {
				return 0, err
			}
			g.Loss(loss)
		}
	}
	for i := range slices.Backward(p.model.Params) { // last parameter first, as the trainer expects
		for k, g := range groups {
			add(g.Grad(i), p.displacement[k][i])
			g.Done(i, 0)
		}
	}
	return 0, nil
}

// compute makes the local steps of one path, adds the displacement times the number of samples to
// displacement, and restores the parameters. It returns the sum of the losses of all samples.
func (p *path) compute(b *trainer.Batch, samples []int, displacement [][]float32) (loss float64, err error) {
	defer func() {
		for i, param := range p.model.Params {
			copy(param.Data, p.start[i])
		}
	}()
	for _, slots := range p.slots {
		for _, v := range slots {
			clear(v)
		}
	}
	steps := ceilDiv(int64(len(samples)), int64(p.batch))
	k := int64(0)
	for batch := range slices.Chunk(samples, p.batch) {
		if err := b.Err(); err != nil {
			return 0, err
		}
		k++
		one, err := p.step(b, k, steps, batch)
		if err != nil {
			return 0, fmt.Errorf("local step %d: %w", k, err)
		}
		loss += one
	}
	for i, param := range p.model.Params {
		addDifference(displacement[i], p.start[i], param.Data, len(samples))
	}
	return loss, nil
}

// rate returns the learning rate of local step k, from 1, of a path of the given number of local
// steps. The schedule counts steps of ordinary training; a round has p.steps.steps of these steps. A
// rate that is not finite is an error, because it would make every parameter infinite or NaN.
func (p *path) rate(round, k, steps int64) (float64, error) {
	if p.bySpeed { // paths of all lengths span the whole round
		k = 1 + (k-1)*p.steps.steps/steps
	}
	at := p.steps.step(max(1, round), k)
	rate := p.schedule(at)
	if math.IsNaN(rate) || math.IsInf(rate, 0) {
		return 0, fmt.Errorf("learning rate %v of step %d: %w", rate, at, trainer.ErrNotFinite)
	}
	return rate, nil
}

// step makes local step k, from 1, of a path, and returns the sum of the samples' losses before the
// step. steps is the number of local steps of the path.
func (p *path) step(b *trainer.Batch, k, steps int64, samples []int) (loss float64, err error) {
	rate, err := p.rate(b.Step(), k, steps)
	if err != nil {
		return 0, err
	}
	clear(p.flat)
	weighed := false
	rest, err := p.model.Gradient(trainer.NewBatch([][]int{samples}, trainer.Gate{
		Step:   b.Step(),
		Grad:   func(param int) []float32 { return p.grad[param] },
		Loss:   func(_ int, sum float64) { loss += sum },
		Weight: func(int, float64) { weighed = true },
		Err:    b.Err,
		Yield:  b.Yield,
	}))
	if err == nil && weighed {
		err = errors.New("the model called Batch.Weight, but local steps count samples: leave the weights out")
	}
	if err != nil {
		return 0, err
	}
	factor := float32(1 / float64(len(samples)))
	for _, g := range p.grad {
		for i := range g {
			g[i] *= factor
		}
	}
	if p.clip > 0 {
		optim.Clip(p.grad, p.clip)
	}
	for i, param := range p.model.Params {
		p.inner.Update(k, rate, param.Data, p.grad[i], p.slots[i])
	}
	b.Yield()
	return loss + rest, nil
}

// addDifference adds samples * (before - after) to displacement; all have the same length. The
// float32 conversion prevents fused multiply-add, which rounds differently and which compilers emit
// only for some processors.
func addDifference(displacement, before, after []float32, samples int) {
	n := float32(samples)
	before, after = before[:len(displacement)], after[:len(displacement)]
	for i := range displacement {
		displacement[i] += float32(n * (before[i] - after[i]))
	}
}

// add adds v to grad; both have the same length.
func add(grad, v []float32) {
	v = v[:len(grad)]
	for i := range grad {
		grad[i] += v[i]
	}
}
