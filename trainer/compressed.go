package trainer

import (
	"context"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/trainer/compress"
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/optim"
)

// compressedAccumulator is a floatAccumulator whose sums are sent in a lossy coding. The coding
// error of this peer is added to its gradients of the next step (error feedback: Seide et al.,
// 1-bit stochastic gradient descent, 2014).
type compressedAccumulator struct {
	*floatAccumulator
	coding collective.Coding
	open   func() stepPlan // returns the plan of the open step

	// lacked is the accumulated coding error up to the last committed step, in the unit of that
	// step's sum. A reduction reads lacked and writes next, so that a failed step can be reduced
	// again.
	lacked, next vector
	of           int64 // number of samples of the step whose coding error is in lacked; 0 if lacked has no error
	staged       bool  // next holds the coding error of the open step
	sent, raw    int64 // bytes of the last try: those sent, and those that a ring of float32 would send
}

// newCompressedAccumulator allocates the memory of a contribution: a floatAccumulator's, and two
// vectors.
func newCompressedAccumulator(l layout, coding collective.Coding, open func() stepPlan) (*compressedAccumulator, *gradientBuffers) {
	p, bufs := newFloatAccumulator(l)
	return &compressedAccumulator{floatAccumulator: p, coding: coding, open: open, lacked: l.vector(), next: l.vector()}, bufs
}

// samples returns the samples of the open step, over all peers.
func (c *compressedAccumulator) samples() int64 {
	p := c.open()
	return int64(p.end - p.first)
}

// clear empties the contribution and drops the open step's coding error.
func (c *compressedAccumulator) clear(scale exact.Scale) {
	c.floatAccumulator.clear(scale)
	c.staged = false
}

// reduce adds the accumulated coding error to the bucket, and starts the reduction of the bucket.
// The operand of the call is in next, where the call leaves the new coding error.
func (c *compressedAccumulator) reduce(ctx context.Context, on bucketComm, b bucket) pending {
	comm := on.long()
	c.scan(b)
	if b.number == 0 { // the first bucket of a try
		c.sent, c.raw = 0, 0
	}
	coding := compress.At(c.coding, c.open().step)
	sent, raw := comm.CodedBytes(b.hi-b.lo, coding)
	c.sent, c.raw = c.sent+sent, c.raw+raw
	c.staged = true
	v, factor := c.next.flat[b.lo:b.hi], c.factor()
	for i, own := range c.own.flat[b.lo:b.hi] {
		v[i] = own + float32(factor*c.lacked.flat[b.lo+i])
	}
	return collective.IAllReduceCoded(ctx, comm, c.bufs.staging.flat[b.lo:b.hi], v, coding)
}

// migrate moves nothing: codes are sent in messages, not through shared memory.
func (c *compressedAccumulator) migrate(*sharedBuffers) error { return nil }

// factor returns the factor by which reduce multiplies lacked. If the open step has more or fewer
// samples than the step of lacked, the coding error keeps its weight in the mean.
func (c *compressedAccumulator) factor() float32 {
	if c.of == 0 {
		return 0
	}
	return float32(float64(c.samples()) / float64(c.of))
}

// commit records that the open step is committed; it is called before the step is cleared. counted
// is true if this peer's contribution is in the committed sums. Then this peer's last reduction was
// complete, because the commit record follows the reduction, and next replaces lacked. Otherwise
// this peer's gradients were not applied, and lacked stays valid.
func (c *compressedAccumulator) commit(counted bool) {
	if c == nil || !counted || !c.staged {
		return
	}
	c.lacked, c.next = c.next, c.lacked
	c.of = c.samples()
}

// forget discards the coding error, including that of the open step. It returns the norm of the
// error up to the last committed step, in units of a mean gradient.
func (c *compressedAccumulator) forget() float64 {
	if c == nil {
		return 0
	}
	c.staged = false
	if c.of == 0 {
		return 0
	}
	norm := optim.Norm(c.lacked.views) / float64(c.of)
	clear(c.lacked.flat)
	c.of = 0
	return norm
}

// traffic returns the bytes of gradients that this peer sent in the last try, and the bytes that
// it would have sent without compression.
func (c *compressedAccumulator) traffic() (sent, raw int64) {
	if c == nil {
		return 0, 0
	}
	return c.sent, c.raw
}

// sparse reports whether the coding sends only few elements of the gradients, so that the sum of a
// step contains parts of earlier gradients, and its norm is no property of the step.
func (c *compressedAccumulator) sparse() bool { return c != nil && c.coding.Sparse() }

// bytes returns the encoded length of all gradients, for forecasts of step times. The first steps
// of a job may send more, until the final coding is in use.
func (c *compressedAccumulator) bytes(l layout) int {
	if c == nil {
		return 4 * l.size()
	}
	total := 0
	for _, b := range l.buckets {
		total += c.coding.Size(b.hi - b.lo)
	}
	return total
}
