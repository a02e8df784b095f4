package trainer

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/loadbal"
	"github.com/elrun/elrun/trainer/optim"
)

// contribution is what this peer has computed for one step: the gradient sums of
// whole microbatches. Reductions read it and never write to it, so that a step
// which failed with its session can be reduced again.
type contribution struct {
	step       int64
	grad       []float32   // flat
	views      [][]float32 // grad, per parameter
	first, end int         // microbatches in it: [first, end)
	samples    int
	loss       float64       // sum over samples
	compute    time.Duration // in the model
	recomputed int           // microbatches thrown away after a change of the group
}

// begin makes the contribution fit a peer that is to compute the microbatches
// [first, end) of step. What it holds of that step stays, unless some of it is now
// another peer's.
func (c *contribution) begin(step int64, first, end int) {
	held := c.end - c.first
	keep := c.step == step && held > 0 && c.first == first && c.end <= end
	if keep {
		return
	}
	again := 0
	if c.step == step {
		again = c.recomputed + held
	}
	clear(c.grad)
	*c = contribution{step: step, grad: c.grad, views: c.views, first: first, end: first, recomputed: again}
}

// step computes, reduces and applies the step after the committed one.
func (r *runner) step(ctx context.Context, s *elastic.Session) error {
	begun := time.Now()
	p := r.plan.step(r.committed + 1)
	shares := loadbal.Equal(p.microbatches, len(s.View.Members))
	first, end := loadbal.Range(shares, s.Rank)
	r.open.begin(p.step, first, end)

	bad := faultNone
	reduction := newReduction(r.layout, func(b bucket) pending {
		if i := r.badGradient(b); i >= 0 {
			bad = faultGradient + fault(i)
		}
		return collective.IAllReduce(ctx, s.Comm, r.sums[b.lo:b.hi], r.open.grad[b.lo:b.hi], collective.Sum[float32])
	})
	if err := r.compute(ctx, p, end, reduction); err != nil {
		// The others wait for this peer's buckets. They learn the reason, and the
		// calls that have begun here end before the buffers are left.
		err = fmt.Errorf("step %d: %w", p.step, err)
		s.Comm.Revoke(err)
		_ = reduction.wait(ctx) // its error is only that of the revocation
		return err
	}
	computed := time.Now()
	if err := reduction.wait(ctx); err != nil {
		return err
	}
	if !finite(r.open.loss) {
		bad = faultLoss
	}
	slots, err := r.tail(ctx, s, slot{samples: int64(r.open.samples), loss: r.open.loss, speed: r.open.speed(), fault: bad})
	if err != nil {
		return err
	}
	comm := time.Since(computed)
	if err := r.apply(p, slots); err != nil {
		return err
	}
	r.unstable = r.report(s, p, slots)
	r.unstable.Comm, r.unstable.Total = comm, time.Since(begun)
	return nil
}

// compute adds the microbatches that are still missing, up to end, and starts the
// reduction of each bucket as soon as the last backward pass is done with it.
func (r *runner) compute(ctx context.Context, p stepPlan, end int, reduction *reduction) error {
	c := &r.open
	if c.end == end {
		reduction.startAll()
		return nil
	}
	var samples []int
	for c.end < end {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		done := func(int) {}
		if c.end == end-1 {
			done = reduction.done
		}
		samples = p.appendSamples(samples[:0], c.end)
		begun := time.Now()
		loss, err := r.model.Accumulate(c.views, samples, done)
		c.compute += time.Since(begun)
		if err != nil {
			return fmt.Errorf("microbatch %d: %w", c.end, err)
		}
		c.end++
		c.samples += len(samples)
		c.loss += loss
	}
	return reduction.check()
}

// speed is the samples that the model takes in a second.
func (c *contribution) speed() int64 {
	if c.compute <= 0 {
		return 0
	}
	return int64(float64(c.samples) / c.compute.Seconds())
}

// badGradient returns the first parameter of a bucket whose contribution is not
// finite, or -1.
func (r *runner) badGradient(b bucket) int {
	for i := b.firstParam; i < b.endParam; i++ {
		if !allFinite(r.open.views[i]) {
			return i
		}
	}
	return -1
}

// tail exchanges the ranks' slots, to which it adds this peer's state. When it
// returns nil every rank's contribution is in every rank's sums, and the step that
// was committed before is stable: it is reported here.
func (r *runner) tail(ctx context.Context, s *elastic.Session, mine slot) ([]slot, error) {
	mine.digest, mine.committed = r.digest, r.committed
	words := make([]int64, len(s.View.Members)*slotWords)
	putSlot(words, s.Rank, mine)
	if err := collective.AllReduce(ctx, s.Comm, words, words, collective.Sum[int64]); err != nil {
		return nil, fmt.Errorf("tail after step %d: %w", r.committed, err)
	}
	slots := getSlots(words)
	if err := checkAgreement(slots, peerName(s)); err != nil {
		return nil, err
	}
	r.reportStable()
	if err := checkFaults(slots, peerName(s), r.layout.params); err != nil {
		return nil, fmt.Errorf("step %d: %w", r.committed+1, err)
	}
	return slots, nil
}

// apply turns the sums of a committed step into the mean gradient and this into new
// parameters. Every rank does the same on the same bits, so an error is every
// rank's error.
func (r *runner) apply(p stepPlan, slots []slot) error {
	samples, _ := totals(slots)
	if want := int64(p.end - p.first); samples != want {
		return fmt.Errorf("step %d: peers contributed %d samples, the step has %d", p.step, samples, want)
	}
	scale := float32(1 / float64(samples))
	for i, v := range r.sumViews {
		for j := range v {
			v[j] *= scale
		}
		if !allFinite(v) {
			return fmt.Errorf("step %d: gradient of %s summed over all peers: %w", p.step, r.layout.params[i].Name, ErrNotFinite)
		}
	}
	if r.cfg.Clip > 0 {
		optim.Clip(r.sumViews, r.cfg.Clip)
	}
	rate := r.cfg.Schedule(p.step)
	if math.IsNaN(rate) || math.IsInf(rate, 0) {
		return fmt.Errorf("step %d: learning rate %v: %w", p.step, rate, ErrNotFinite)
	}
	for i, param := range r.params {
		r.cfg.Optimizer.Update(p.step, rate, param, r.sumViews[i], r.state[i])
	}
	r.committed = p.step
	r.digest = digestOf(r.layout.params)
	return nil
}
