package main

import (
	"context"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/elrun/elrun/trainer"
)

// pacer makes a model take its time, so that tests find steps of a known length
// and peers of known speeds. It is not safe for concurrent use.
type pacer struct {
	ctx    context.Context // ends the waiting
	sample time.Duration   // that a sample takes at least
	slow   slowdowns
	index  int   // of this peer
	step   int64 // under way
	// due is when the microbatch before should have ended; zero before the first of a
	// step. It ends later, as a timer does, and what that is shall not add up.
	due time.Time
}

// newPacer returns a pacer as the options say. Config.OnBegin and
// OnTrial have to be its begin.
func newPacer(ctx context.Context, o options) *pacer {
	return &pacer{ctx: ctx, sample: o.Pace, slow: o.Slow, index: localIndex()}
}

// localIndex is the number that elrun gave this peer; alone it is 0.
func localIndex() int {
	index, err := strconv.Atoi(os.Getenv("ELRUN_INDEX"))
	if err != nil {
		return 0
	}
	return index
}

// begin takes note of the step that is computed next.
func (p *pacer) begin(step int64) { p.step, p.due = step, time.Time{} }

// slowed returns a model that computes as m does and then waits. Gradients are handed on when the
// time is over, as a slow model would. It has the time of each microbatch to itself: a call has
// one, and waits for nothing else.
func (p *pacer) slowed(m trainer.Model) trainer.Model {
	gradient := m.Gradient
	m.MaxSamples, m.Waits = 0, false
	m.Gradient = func(b *trainer.Batch) (float64, error) {
		begun := time.Now()
		loss, err := gradient(b.Wrap(func(g *trainer.Gate) { g.Done = nil }))
		if err != nil {
			return 0, err
		}
		if p.due.IsZero() {
			p.due = begun
		}
		p.due = p.due.Add(p.length(len(b.Samples()), time.Since(begun)))
		return loss, p.wait(time.Until(p.due))
	}
	return m
}

// length returns how long a microbatch takes that was computed in a given time.
func (p *pacer) length(samples int, computed time.Duration) time.Duration {
	least := time.Duration(samples) * p.sample
	length := float64(max(least, computed)) * p.slow.factor(p.index, p.step)
	return time.Duration(min(length, math.MaxInt64/2))
}

// wait waits for d, if that is above 0, but no longer than the program lives.
func (p *pacer) wait(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}
