package local

import (
	"errors"
	"fmt"
	"math"

	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/optim"
)

// path computes what a Batch asks for by local steps. It is the model's memory between calls,
// none of which depends on the one before.
type path struct {
	model    trainer.Model // of ordinary training
	batch    int           // samples of a local step
	rule     optim.Optimizer
	schedule optim.Schedule
	clip     float64
	place    place
	round    int64 // under way; 0 before the first

	start [][]float32 // the parameters at the beginning of a path
	// grad is of one local step. In exact mode it has to be aligned as the trainer's is, and
	// costs nothing to be so otherwise.
	flat  []float32
	grad  [][]float32
	slots [][][]float32 // of each parameter, those of the rule
}

// newPath takes the memory; cfg is of ordinary training.
func newPath(m trainer.Model, cfg trainer.Config, steps int) *path {
	p := &path{model: m, batch: cfg.Microbatch, rule: cfg.Optimizer, schedule: cfg.Schedule, clip: cfg.Clip, place: newPlace(cfg, steps)}
	var sizes []int
	for _, param := range m.Params {
		n := len(param.Data)
		sizes = append(sizes, n)
		p.start = append(p.start, make([]float32, n))
		p.slots = append(p.slots, optim.NewState(p.rule, n))
	}
	p.flat, p.grad = exact.Views(sizes)
	return p
}

// begins returns a function that takes note of the round before it tells then, which may be
// nil.
func (p *path) begins(then func(step int64)) func(step int64) {
	return func(step int64) {
		p.round = step
		if then != nil {
			then(step)
		}
	}
}

// gradient is Model.Gradient. The parameters are as they were when it returns, also with an
// error or by a panic.
func (p *path) gradient(b *trainer.Batch) (loss float64, err error) {
	if p.round == 0 {
		return 0, errors.New("local: the model was called before Config.OnBegin: give trainer.Run the Config that Wrap returned, with its OnBegin and OnTrial")
	}
	params := p.model.Params
	for i, param := range params {
		b.Wait(i, 0)
		copy(p.start[i], param.Data)
	}
	moved := len(params) // so many of the first are not what they were
	defer func() {
		for i := range moved {
			copy(params[i].Data, p.start[i])
		}
	}()
	loss, err = p.walk(b)
	if err != nil {
		return 0, err
	}
	for moved > 0 { // from the last one on, as the trainer expects it
		i := moved - 1
		addDifference(b.Grad(i), p.start[i], params[i].Data, len(b.Samples()))
		copy(params[i].Data, p.start[i])
		moved = i
		b.Done(i, 0)
	}
	return loss, nil
}

// walk takes the local steps, and returns the sum of the losses of all samples.
func (p *path) walk(b *trainer.Batch) (loss float64, err error) {
	for _, slots := range p.slots {
		for _, v := range slots {
			clear(v)
		}
	}
	samples := b.Samples()
	for k := int64(1); len(samples) > 0; k++ {
		if err := b.Err(); err != nil {
			return 0, err
		}
		n := min(p.batch, len(samples))
		one, err := p.step(b, k, samples[:n])
		if err != nil {
			return 0, fmt.Errorf("local step %d: %w", k, err)
		}
		loss, samples = loss+one, samples[n:]
	}
	return loss, nil
}

// step takes local step k, from 1, and returns the sum of the losses before it.
func (p *path) step(b *trainer.Batch, k int64, samples []int) (loss float64, err error) {
	at := p.place.step(p.round, k)
	rate := p.schedule(at)
	if math.IsNaN(rate) || math.IsInf(rate, 0) {
		return 0, fmt.Errorf("local: learning rate %v of step %d: %w", rate, at, trainer.ErrNotFinite)
	}
	clear(p.flat)
	rest, err := p.model.Gradient(trainer.NewBatch([][]int{samples}, trainer.Gate{
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

// addDifference adds samples * (before - after) to grad; all have one length. The conversion
// keeps compilers of other machines from fusing multiplication and addition, which would
// round differently.
func addDifference(grad, before, after []float32, samples int) {
	n := float32(samples)
	before, after = before[:len(grad)], after[:len(grad)]
	for i := range grad {
		grad[i] += float32(n * (before[i] - after[i]))
	}
}
