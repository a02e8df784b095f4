package trainer

import (
	"context"
	"fmt"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/internal/laps"
	"github.com/elrun/elrun/trainer/internal/ledger"
	"github.com/elrun/elrun/trainer/internal/steal"
)

// contribution is this peer's result for one attempt at one step: gradient sums over whole
// microbatches, and the set of these microbatches.
//
// Invariants: a microbatch is in the sums as a whole or not at all. Reductions read the sums and
// never write to them, so that a step that failed with its session can be reduced again. Single
// microbatches cannot be removed: a contribution is kept or dropped as a whole.
type contribution struct {
	step    int64 // number of the step
	attempt int64 // at the step, from 0; exact mode only
	// scale is the scale of the attempt, in exact mode only.
	scale exact.Scale
	// owner is the identity of this peer under which the contribution was computed. If this peer
	// has another identity by now, others have computed the same microbatches.
	owner elastic.ID
	sums  accumulator // the gradients
	clock *laps.Clock // of the open step; outside of a step it does not run

	held ledger.Set // microbatches in sums
	// computed has the microbatches that were computed for this attempt at any time.
	computed ledger.Set
	samples  int            // number of samples in sums
	weights  ledger.Weights // of the samples in sums
	// unweighable is the error of a call that gives a weight; nil if calls may do so.
	unweighable error
	// gradScale is Model.GradScale, or 1.
	gradScale float64
	// group is the number of the first samples that were added, and groupNorm the squared norm of the sum of
	// their gradients; 0 if it was not measured.
	group     int
	groupNorm float64
	loss      ledger.Sum    // of the samples in sums
	lossFault bool          // a loss was not finite
	compute   time.Duration // time in the model, without waits for samples that were not foreseen
	// recomputed is the number of microbatches that were computed a second time.
	recomputed int
}

// reset empties the contribution, for an attempt at a step of the given number of microbatches.
// The record of computed microbatches survives if the attempt is the same.
func (c *contribution) reset(step, attempt int64, scale exact.Scale, microbatches int) {
	next := contribution{step: step, attempt: attempt, scale: scale, owner: c.owner, sums: c.sums, clock: c.clock, unweighable: c.unweighable, gradScale: c.gradScale,
		held: ledger.NewSet(microbatches), computed: ledger.NewSet(microbatches)}
	if c.step == step && c.attempt == attempt && c.computed != nil {
		next.computed, next.compute, next.recomputed = c.computed, c.compute, c.recomputed
	}
	*c = next
	c.sums.clear(scale)
}

// add computes microbatches of the step in one call and adds them. After an error the
// contribution is invalid; otherwise all of the microbatches are in it.
func (c *contribution) add(m Model, p stepPlan, micros []int, ready func(i, from int)) error {
	l := newCall(m, p, micros, c.sums)
	l.sink = c.sums.collect(l.micros, ready)
	l.begun = c.clock.Lap(time.Now(), laps.Reduce)
	return c.take(l, l.run(m))
}

// take records the result of a call that ended with err.
func (c *contribution) take(l *call, err error) error {
	now := time.Now()
	c.compute += max(0, now.Sub(l.begun)-l.unforeseen)
	c.clock.Call(now, l.unforeseen)
	if err != nil {
		return fmt.Errorf("microbatches %d: %w", l.micros, err)
	}
	w := l.weighed()
	if w.Differ() && c.unweighable != nil {
		return c.unweighable
	}
	c.weights = c.weights.Plus(w)
	for i, k := range l.micros {
		if c.computed.Has(k) {
			c.recomputed++
		}
		c.computed.Add(k)
		c.held.Add(k)
		c.samples += len(l.samples[i])
	}
	// A loss that is not finite is a fault of the contribution. The commit record reports it to all
	// ranks, which then end the job together.
	for k, loss := range l.losses {
		if weight, ok := l.weights[k]; ok && weight == 0 {
			continue
		}
		if !finite(loss) {
			c.lossFault = true
			continue
		}
		c.loss = c.loss.Plus(ledger.SumOf(loss))
	}
	return nil
}

// perSample turns the squared norm of this peer's sums into that of sums in which each sample has the
// weight 1; 0 if all samples were skipped.
func (c *contribution) perSample(norm float64) float64 {
	weight := c.weights.Sum.Float() * c.gradScale
	if weight == 0 {
		return 0
	}
	return norm * square(float64(c.samples)/weight)
}

// forget drops the record of computed microbatches, so that computing them again does not count
// as recomputed.
func (c *contribution) forget() { c.computed = nil }

// ignore is the callback ready for gradients that are not complete yet, because later calls add to
// them.
func ignore(i, from int) {}

// fault returns the first error in the contribution. All errors are known once every bucket has
// been passed to a reduction, because a reduction checks its bucket first.
func (c *contribution) fault() fault {
	if c.lossFault {
		return faultLoss
	}
	return c.sums.fault()
}

// calls returns the missing microbatches of a share, divided into calls of the model.
func (c *contribution) calls(share ledger.Set, most int) [][]int {
	return callsOf(share.Without(c.held), most)
}

// complete makes the calls of the queue and adds their results. During the last call it starts the
// reduction of each bucket as soon as the bucket is complete. Before each call it checks for the end
// of ctx, and calls may with the microbatches, whose error ends the calls; finished calls stay in the
// contribution.
func (c *contribution) complete(ctx context.Context, m Model, p stepPlan, q *steal.Queue, r *reduction, may func(micros []int) error) error {
	for {
		micros, last, err := q.Next(c.held.Len())
		if err != nil {
			return fmt.Errorf("microbatches that this peer has not begun: %w", err)
		}
		if len(micros) == 0 {
			break
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := may(micros); err != nil {
			return err
		}
		// Before the last call a gradient is not complete: further calls add to it.
		ready := ignore
		if last {
			ready = r.ready
		}
		if err := c.add(m, p, micros, ready); err != nil {
			return err
		}
	}
	r.startAll()
	return r.err
}
