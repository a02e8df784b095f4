package trainer

import (
	"context"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/trainer/compress"
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/optim"
)

// compressedAccumulator is plain, but that sums travel in a coding that loses something. What the
// codes of this peer lacked is added to its gradients of the next step (error feedback).
type compressedAccumulator struct {
	*floatAccumulator
	coding collective.Coding
	open   func() stepPlan // the open step

	// lacked is what was lost up to the last committed step, as part of a sum over of
	// samples. A reduction reads it and writes next, so that a step can be reduced again.
	lacked, next vector
	of           int64
	staged       bool // next has something of the open step
	sent, raw    int64
}

// newCompressedAccumulator takes the memory of a contribution: of plain, and two vectors besides.
func newCompressedAccumulator(l layout, coding collective.Coding, open func() stepPlan) (*compressedAccumulator, *gradients) {
	p, bufs := newFloatAccumulator(l)
	return &compressedAccumulator{floatAccumulator: p, coding: coding, open: open, lacked: l.vector(), next: l.vector()}, bufs
}

// samples of the open step, over all peers.
func (c *compressedAccumulator) samples() int64 {
	p := c.open()
	return int64(p.end - p.first)
}

func (c *compressedAccumulator) clear(scale exact.Scale) {
	c.floatAccumulator.clear(scale)
	c.staged = false
}

// reduce adds what was lacking to the bucket, in next, where the call leaves what is
// lacking now.
func (c *compressedAccumulator) reduce(ctx context.Context, on bucketComm, b bucket) pending {
	comm := on.long()
	c.scan(b)
	if b.number == 0 { // the first of a try
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

// factor makes what lacked of the sum of another step, with more or fewer samples, as
// much a part of the mean of this one.
func (c *compressedAccumulator) factor() float32 {
	if c.of == 0 {
		return 0
	}
	return float32(float64(c.samples()) / float64(c.of))
}

// commit takes note that the open step is committed, before it is cleared. What lacks has
// changed only if this peer's contribution is in it: then its last reduction was complete,
// as the commit record comes after it.
func (c *compressedAccumulator) commit(counted bool) {
	if c == nil || !counted || !c.staged {
		return
	}
	c.lacked, c.next = c.next, c.lacked
	c.of = c.samples()
}

// forget gives up what lacks, also of the open step, and returns the norm of what lacked up to the
// last one, as part of a mean gradient.
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

// traffic returns the bytes of gradients that this peer has sent in the last try, and
// those that it would have sent without compression.
func (c *compressedAccumulator) traffic() (sent, raw int64) {
	if c == nil {
		return 0, 0
	}
	return c.sent, c.raw
}

// sparse reports whether sums have only few elements of the gradients, so that their norm
// tells nothing of a single step.
func (c *compressedAccumulator) sparse() bool { return c != nil && c.coding.Sparse() }

// bytes is the length of all gradients as they are sent, the first steps apart.
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
