package main

import (
	"context"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/elrun/elrun/trainer"
)

// pacer slows a model down, so that tests have steps of a known length and peers of known speeds.
// It is not safe for concurrent use.
type pacer struct {
	ctx    context.Context // its end interrupts the waiting
	sample time.Duration   // least time of a sample
	slow   slowdowns
	index  int   // index of this peer
	peers  int   // local peers
	step   int64 // the current step
	// due is the time at which the previous microbatch should have ended; zero before the first one
	// of a step. Timers fire late. Waiting until due prevents these delays from adding up.
	due time.Time
}

// newPacer returns a pacer for the options. OnBegin and OnTrial of trainer.Hooks must call its begin.
func newPacer(ctx context.Context, o options) *pacer {
	return &pacer{ctx: ctx, sample: o.Pace, slow: o.Slow, index: fromEnvironment("ELRUN_INDEX", 0), peers: fromEnvironment("ELRUN_NP", 1)}
}

// fromEnvironment returns a number that elrun gave this peer; otherwise without elrun.
func fromEnvironment(name string, otherwise int) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return otherwise
	}
	return n
}

// begin records the step that is computed next.
func (p *pacer) begin(step int64) { p.step, p.due = step, time.Time{} }

// slowed returns a model that computes as m does and then waits. It passes on gradients after the wait, as a slow model would.
// Each call has one microbatch and does not wait for parameters, so its time is the time of one microbatch.
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

// length returns the time that a microbatch has to take, given the time that it took to compute.
func (p *pacer) length(samples int, computed time.Duration) time.Duration {
	least := time.Duration(samples) * p.sample
	length := float64(max(least, computed)) * p.slow.factor(p.index, p.peers, p.step)
	return time.Duration(min(length, math.MaxInt64/2))
}

// wait sleeps for d, if d is positive. If ctx ends first, wait returns the cause at once.
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
