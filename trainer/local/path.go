package local

import (
	"fmt"
	"math"
	"slices"

	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/optim"
)

// path computes what a Batch asks for by local steps. It is the model's memory between calls,
// none of which depends on the one before.
type path struct {
	model    trainer.Model // of ordinary training
	batch    int           // samples of a local step
	most     int           // samples of a path
	bySpeed  bool          // a path has a round's samples, in any number of steps
	rule     optim.Optimizer
	schedule optim.Schedule
	clip     float64
	place    place

	start [][]float32 // the parameters at the beginning of a path
	// grad is of one local step. In exact mode it has to be aligned as the trainer's is, and
	// costs nothing to be so otherwise.
	flat  []float32
	grad  [][]float32
	slots [][][]float32 // of each parameter, those of the rule
	moved [][][]float32 // of each group of a Batch: how far its paths came, times their samples
}

// newPath takes the memory; cfg is of ordinary training.
func newPath(m trainer.Model, cfg trainer.Config, c Config) *path {
	p := &path{model: m, batch: cfg.Microbatch, most: cfg.Microbatch * c.Steps, bySpeed: c.BySpeed,
		rule: cfg.Optimizer, schedule: cfg.Schedule, clip: cfg.Clip, place: newPlace(cfg, c.Steps)}
	if c.BySpeed {
		p.most = cfg.GlobalBatch * c.Steps
	}
	var sizes []int
	for _, param := range m.Params {
		n := len(param.Data)
		sizes = append(sizes, n)
		p.start = append(p.start, make([]float32, n))
		p.slots = append(p.slots, optim.NewState(p.rule, n))
	}
	p.flat, p.grad = exact.Views(sizes)
	p.reserve(1)
	return p
}

// reserve takes the memory that so many groups need, and sets it to zero.
func (p *path) reserve(groups int) {
	for len(p.moved) < groups {
		var one [][]float32
		for _, param := range p.model.Params {
			one = append(one, make([]float32, len(param.Data)))
		}
		p.moved = append(p.moved, one)
	}
	for _, one := range p.moved[:groups] {
		for _, v := range one {
			clear(v)
		}
	}
}

// gradient is Model.Gradient. It asks for a place for gradients when all paths are computed, as
// the sums of the round before may be on their way until then. The parameters are as they were
// when it returns, also with an error or by a panic.
func (p *path) gradient(b *trainer.Batch) (loss float64, err error) {
	groups := b.Groups()
	p.reserve(len(groups))
	for i, param := range p.model.Params {
		b.Wait(i, 0)
		copy(p.start[i], param.Data)
	}
	for k, g := range groups {
		for samples := range slices.Chunk(g.Samples(), p.most) {
			loss, err := p.walk(b, samples, p.moved[k])
			if err != nil {
				return 0, err
			}
			g.Loss(loss)
		}
	}
	for i := range slices.Backward(p.model.Params) { // from the last one on, as the trainer expects it
		for k, g := range groups {
			add(g.Grad(i), p.moved[k][i])
			g.Done(i, 0)
		}
	}
	return 0, nil
}

// walk takes the local steps of a path, adds how far it came to moved, and goes back. It returns
// the sum of the losses of all samples.
func (p *path) walk(b *trainer.Batch, samples []int, moved [][]float32) (loss float64, err error) {
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
		addDifference(moved[i], p.start[i], param.Data, len(samples))
	}
	return loss, nil
}

// rate returns the learning rate of local step k of so many, from 1.
func (p *path) rate(round, k, steps int64) (float64, error) {
	if p.bySpeed { // all paths go through the round at once
		k = 1 + (k-1)*p.place.steps/steps
	}
	at := p.place.step(max(1, round), k)
	rate := p.schedule(at)
	if math.IsNaN(rate) || math.IsInf(rate, 0) {
		return 0, fmt.Errorf("learning rate %v of step %d: %w", rate, at, trainer.ErrNotFinite)
	}
	return rate, nil
}

// step takes local step k of so many, from 1, and returns the sum of the losses before it.
func (p *path) step(b *trainer.Batch, k, steps int64, samples []int) (loss float64, err error) {
	rate, err := p.rate(b.Step(), k, steps)
	if err != nil {
		return 0, err
	}
	clear(p.flat)
	rest, err := p.model.Gradient(trainer.NewBatch([][]int{samples}, trainer.Gate{
		Step:  b.Step(),
		Grad:  func(param int) []float32 { return p.grad[param] },
		Loss:  func(_ int, sum float64) { loss += sum },
		Err:   b.Err,
		Yield: b.Yield,
	}))
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
		p.rule.Update(k, rate, param.Data, p.grad[i], p.slots[i])
	}
	b.Yield()
	return loss + rest, nil
}

// addDifference adds samples * (before - after) to moved; all have one length. The conversion
// keeps compilers of other machines from fusing multiplication and addition, which would
// round differently.
func addDifference(moved, before, after []float32, samples int) {
	n := float32(samples)
	before, after = before[:len(moved)], after[:len(moved)]
	for i := range moved {
		moved[i] += float32(n * (before[i] - after[i]))
	}
}

// add adds v to grad, which has its length.
func add(grad, v []float32) {
	v = v[:len(grad)]
	for i := range grad {
		grad[i] += v[i]
	}
}
