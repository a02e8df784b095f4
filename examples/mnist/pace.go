package main

import (
	"context"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/elrun/elrun/trainer"
)

// paced is a model that takes its time, so that tests find steps of a known length
// and peers of known speeds. It is not safe for concurrent use.
type paced struct {
	trainer.Model
	ctx    context.Context // ends the waiting
	sample time.Duration   // that a sample takes at least
	slow   slowdowns
	index  int   // of this peer
	step   int64 // under way
	late   []int // parameters whose gradients are complete
	// due is when the microbatch before should have ended; zero before the first of a
	// step. It ends later, as a timer does, and what that is shall not add up.
	due time.Time
}

// newPaced wraps a model as the options say. Config.OnBegin and
// OnTrial have to be its begin.
func newPaced(ctx context.Context, m trainer.Model, o options) *paced {
	return &paced{Model: m, ctx: ctx, sample: o.Pace, slow: o.Slow, index: localIndex()}
}

// localIndex is the number that elrun gave this peer; alone it is 0.
func localIndex() int {
	index, err := strconv.Atoi(os.Getenv("ELRUN_INDEX"))
	if err != nil {
		return 0
	}
	return index
}

// Prefetch passes on what the model below can make use of.
func (p *paced) Prefetch(ctx context.Context, samples []int) {
	if below, ok := p.Model.(trainer.Prefetcher); ok {
		below.Prefetch(ctx, samples)
	}
}

// begin takes note of the step that is computed next.
func (p *paced) begin(step int64) { p.step, p.due = step, time.Time{} }

// Accumulate computes as the model below does and then waits. Gradients are handed
// on when the time is over, as a slow model would.
func (p *paced) Accumulate(grad [][]float32, samples []int, done func(i int)) (float64, error) {
	begun := time.Now()
	p.late = p.late[:0]
	loss, err := p.Model.Accumulate(grad, samples, func(i int) { p.late = append(p.late, i) })
	if err == nil {
		if p.due.IsZero() {
			p.due = begun
		}
		p.due = p.due.Add(p.length(len(samples), time.Since(begun)))
		err = p.wait(time.Until(p.due))
	}
	if err != nil {
		return 0, err
	}
	for _, i := range p.late {
		done(i)
	}
	return loss, nil
}

// length returns how long a microbatch takes that was computed in a given time.
func (p *paced) length(samples int, computed time.Duration) time.Duration {
	least := time.Duration(samples) * p.sample
	length := float64(max(least, computed)) * p.slow.factor(p.index, p.step)
	return time.Duration(min(length, math.MaxInt64/2))
}

// wait waits for d, if that is above 0, but no longer than the program lives.
func (p *paced) wait(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}
