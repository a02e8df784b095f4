package trainer

import (
	"context"
	"fmt"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/internal/ledger"
)

// contribution is what this peer has computed for one attempt at one step: the gradient
// sums of whole microbatches, and which they are. Reductions read it and never write to
// it, so that a step which failed with its session can be reduced again. It cannot be
// taken apart: it is kept as a whole or thrown away as a whole.
type contribution struct {
	step    int64
	attempt int64
	scale   exact.Scale // of the attempt; exact mode only
	owner   elastic.ID  // identity of this peer under which it was computed
	sums    accumulator // the gradients

	held       ledger.Set // microbatches in sums
	computed   ledger.Set // those computed for this attempt at all
	samples    int        // in sums
	loss       lossSum    // in sums
	lossFault  bool       // a loss was not finite
	compute    time.Duration
	recomputed int // microbatches that were computed a second time
}

// reset empties the contribution for an attempt at a step of so many microbatches.
func (c *contribution) reset(step, attempt int64, scale exact.Scale, microbatches int) {
	next := contribution{step: step, attempt: attempt, scale: scale, owner: c.owner, sums: c.sums,
		held: ledger.NewSet(microbatches), computed: ledger.NewSet(microbatches)}
	if c.step == step && c.attempt == attempt && c.computed != nil {
		next.computed, next.compute, next.recomputed = c.computed, c.compute, c.recomputed
	}
	*c = next
	c.sums.clear(scale)
}

// add computes microbatches of the step together and adds them. After an error the
// contribution is spoiled; otherwise they are in it as a whole.
func (c *contribution) add(m Model, p stepPlan, micros []int, ready func(i, from int)) error {
	l := newCall(m, p, micros, c.sums)
	l.sink = c.sums.collect(len(l.groups), ready)
	return c.take(l, l.run(m))
}

// take adds what a call has computed, which ended with err.
func (c *contribution) take(l *call, err error) error {
	c.compute += time.Since(l.begun)
	if err != nil {
		return fmt.Errorf("microbatches %d: %w", l.micros, err)
	}
	for i, k := range l.micros {
		if c.computed.Has(k) {
			c.recomputed++
		}
		c.computed.Add(k)
		c.held.Add(k)
		c.samples += len(l.samples[i])
	}
	for _, loss := range l.losses {
		if !finite(loss) {
			c.lossFault = true
			continue
		}
		c.loss = c.loss.plus(lossOf(loss))
	}
	return nil
}

// forget takes none of the microbatches for computed, so that to compute them again counts as the
// first time.
func (c *contribution) forget() { c.computed = nil }

// ignore is for gradients to which more will be added.
func ignore(i, from int) {}

// fault says what is wrong with the contribution. It is complete when all of it has
// been handed to reductions.
func (c *contribution) fault() fault {
	if c.lossFault {
		return faultLoss
	}
	return c.sums.fault()
}

// calls returns what is missing of a share, cut into calls of the model.
func (c *contribution) calls(share ledger.Set, most int) [][]int {
	return callsOf(share.Without(c.held), most)
}

// complete adds what the calls compute, in order, and starts the reduction of each bucket
// as soon as the last of them is done with it, or has returned. Between two calls it looks whether it should
// go on; what has been finished stays.
func (c *contribution) complete(ctx context.Context, m Model, p stepPlan, calls [][]int, r *reduction, broken func() error) error {
	for i, micros := range calls {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := broken(); err != nil {
			return err
		}
		ready := ignore
		if i == len(calls)-1 {
			ready = r.ready
		}
		if err := c.add(m, p, micros, ready); err != nil {
			return err
		}
	}
	r.startAll()
	return r.err
}
