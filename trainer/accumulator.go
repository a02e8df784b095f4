package trainer

import (
	"context"
	"fmt"
	"slices"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/optim"
)

// accumulator keeps the gradient sums of a contribution and reduces them, in the numbers of
// its mode: float32, or integers in exact mode.
type accumulator interface {
	// clear empties the contribution; what is added next has that scale.
	clear(scale exact.Scale)
	// groups joins microbatches, given by the samples of each, that need not be computed each
	// as if it were alone.
	groups(micros [][]int) [][]int
	// collect returns a sink for the gradients of so many groups. ready is told of what will
	// not change any more if nothing else is added: of parameter i the elements from an index
	// on.
	collect(groups int, ready func(i, from int)) sink
	// reduce starts the reduction of a bucket of the contribution, which stays as it is.
	reduce(ctx context.Context, c bucketComm, b bucket) pending
	// migrate moves what is reduced into shared memory; after an error nothing has moved.
	migrate(h *sharedBuffers) error
	// fault names the first parameter whose contribution is not finite.
	fault() fault
	// square is the squared Euclidean norm of this peer's own sums.
	square() float64
	// mean turns the sums of all ranks, reduced, into the mean gradient, in the staging
	// buffer. Of parameter i only the first left(i) elements are still sums. fits is false if
	// the step has to be computed again; scale is that of the next step, or of this one again.
	mean(samples int64, left func(i int) int) (scale exact.Scale, fits bool)
}

// sink takes the gradients of one call of the model. They are in the contribution when end has
// returned nil; before that, and after an error, the contribution is spoiled.
type sink struct {
	grad [][]float32              // by parameter
	done func(group, i, from int) // as Gate.Done
	end  func() error             // after the call
}

// gradients are two vectors that take turns. staging takes what has not been committed:
// sums, their mean, or what another peer sends. applied is the mean gradient of the last
// committed step, from which another peer can commit it as well, also while the next
// step is being reduced into staging.
type gradients struct{ staging, applied vector }

// vector is one float32 for each element of each parameter.
type vector struct {
	flat  []float32
	views [][]float32 // parts of flat, by parameter
}

// swap makes what is staged what is applied.
func (g *gradients) swap() { g.staging, g.applied = g.applied, g.staging }

// floatAccumulator sums in float32. Sums of all ranks are reduced into the staging buffer.
type floatAccumulator struct {
	layout layout
	own    vector
	bufs   *gradients
	bad    fault
}

// newFloatAccumulator takes the memory of a contribution.
func newFloatAccumulator(l layout) (*floatAccumulator, *gradients) {
	bufs := &gradients{l.vector(), l.vector()}
	return &floatAccumulator{layout: l, own: l.vector(), bufs: bufs}, bufs
}

func (p *floatAccumulator) clear(exact.Scale) {
	clear(p.own.flat)
	p.bad = faultNone
}

func (p *floatAccumulator) groups(micros [][]int) [][]int { return [][]int{slices.Concat(micros...)} }

func (p *floatAccumulator) collect(_ int, ready func(i, from int)) sink {
	return sink{p.own.views, func(_, i, from int) { ready(i, from) }, func() error { return nil }}
}

func (p *floatAccumulator) reduce(ctx context.Context, c bucketComm, b bucket) pending {
	p.scan(b)
	return collective.IAllReduce(ctx, c.long(), p.bufs.staging.flat[b.lo:b.hi], p.own.flat[b.lo:b.hi], collective.Sum[float32])
}

// scan looks for what is not finite in a bucket that is about to be reduced, which brings
// it into the cache.
func (p *floatAccumulator) scan(b bucket) {
	for i := b.firstParam; i < b.endParam; i++ {
		lo, hi := p.layout.part(b, i)
		if p.bad == faultNone && !allFinite(p.own.flat[lo:hi]) {
			p.bad = faultGradient + fault(i)
		}
	}
}

func (p *floatAccumulator) fault() fault { return p.bad }

func (p *floatAccumulator) square() float64 { return square(optim.Norm(p.own.views)) }

func (p *floatAccumulator) mean(samples int64, left func(i int) int) (exact.Scale, bool) {
	for i, sum := range p.bufs.staging.views {
		makeMean(sum[:left(i)], samples)
	}
	return exact.Scale{}, true
}

// makeMean turns a sum over so many samples into their mean.
func makeMean(sum []float32, samples int64) {
	factor := float32(1 / float64(samples))
	for i := range sum {
		sum[i] *= factor
	}
}

// exactAccumulator sums in integers. Each microbatch is computed alone, in the staging buffer,
// which has nothing to keep until the mean is written to it. Both buffers are aligned,
// so that a microbatch has the same bits in either.
type exactAccumulator struct {
	layout layout
	bufs   *gradients
	scale  exact.Scale
	views  [][]int32 // own sums, by parameter
	own    []int32   // flat
	all    []int32   // sums of all ranks, flat
	parts  [][]int32 // all, by parameter
	peaks  []exact.Peak
	left   [][]int // of each microbatch under way, by parameter: as much of it is not in the sums
	// step has the peaks of all ranks, reduced.
	step []exact.Peak
}

// newExactAccumulator takes the memory of a contribution.
func newExactAccumulator(l layout) (*exactAccumulator, *gradients) {
	var sizes []int
	for _, p := range l.params {
		sizes = append(sizes, len(p.Data))
	}
	bufs := &gradients{}
	bufs.staging.flat, bufs.staging.views = exact.Views(sizes)
	bufs.applied.flat, bufs.applied.views = exact.Views(sizes)
	n := len(l.params)
	q := &exactAccumulator{layout: l, bufs: bufs, own: make([]int32, l.size()), all: make([]int32, l.size()),
		peaks: make([]exact.Peak, n), step: make([]exact.Peak, n)}
	q.views, q.parts = cut(l, q.own), cut(l, q.all)
	return q, bufs
}

func (q *exactAccumulator) clear(scale exact.Scale) {
	q.scale = scale
	clear(q.own)
	clear(q.peaks)
}

func (q *exactAccumulator) groups(micros [][]int) [][]int { return micros }

// collect takes each gradient as soon as the model is done with it, so that its reduction can
// begin while the model computes the others.
func (q *exactAccumulator) collect(groups int, ready func(i, from int)) sink {
	clear(q.bufs.staging.flat)
	last := groups - 1
	q.begin(groups)
	var early error
	taken := func(k, i, from int) {
		known := k >= 0 && k <= last && i >= 0 && i < len(q.views) // or ready says what the model does wrong
		if known {
			q.take(k, i, from, k < last)
		}
		switch {
		case k != last:
		case known && q.lacks(i, from):
			early = fmt.Errorf("the model was done with parameter %d in the last group before that in others", i)
		default:
			ready(i, from)
		}
	}
	return sink{q.bufs.staging.views, taken, func() error {
		if early != nil {
			return early
		}
		for i := range q.views {
			q.take(last, i, 0, false)
		}
		return q.whole()
	}}
}

// begin is for so many microbatches of which nothing is in the sums.
func (q *exactAccumulator) begin(micros int) {
	q.left = q.left[:0]
	for range micros {
		var left []int
		for _, v := range q.views {
			left = append(left, len(v))
		}
		q.left = append(q.left, left)
	}
}

// lacks reports whether what microbatches before the last one add to parameter i, from an
// element on, is not all in the sums.
func (q *exactAccumulator) lacks(i, from int) bool {
	return slices.ContainsFunc(q.left[:len(q.left)-1], func(left []int) bool { return left[i] > from })
}

// take adds the gradient of parameter i of microbatch k, from an element on, unless it has
// done so. If others follow it leaves zeros.
func (q *exactAccumulator) take(k, i, from int, others bool) {
	end := q.left[k][i]
	if from < 0 || from >= end {
		return
	}
	q.left[k][i] = from
	part := q.bufs.staging.views[i][from:end]
	q.peaks[i] = max(q.peaks[i], q.scale.Add(i, q.views[i][from:end], part))
	if others {
		clear(part)
	}
}

// whole says what the model has not told of.
func (q *exactAccumulator) whole() error {
	for k, left := range q.left {
		if i := slices.IndexFunc(left, func(n int) bool { return n > 0 }); i >= 0 {
			return fmt.Errorf("the model has not called Done(%d, 0) of group %d: a model that is Grouped calls it for each", i, k)
		}
	}
	return nil
}

// reduce reduces the peaks together with the last bucket.
func (q *exactAccumulator) reduce(ctx context.Context, c bucketComm, b bucket) pending {
	p := collective.IAllReduce(ctx, c.long(), q.all[b.lo:b.hi], q.own[b.lo:b.hi], collective.Sum[int32])
	if !b.last {
		return p
	}
	return bothWaits{p, collective.IAllReduce(ctx, c.short(), q.step, q.peaks, collective.Max[exact.Peak])}
}

func (q *exactAccumulator) fault() fault {
	if i := exact.NotFinite(q.peaks); i >= 0 {
		return faultGradient + fault(i)
	}
	return faultNone
}

// square adds up squares of integers, and scales their sum: the mean of a single 1 is the
// unit.
func (q *exactAccumulator) square() float64 {
	total := 0.0
	for i, sums := range q.views {
		var unit [1]float32
		q.scale.Mean(i, unit[:], []int32{1}, 1)
		part := 0.0
		for _, v := range sums {
			part += square(float64(v))
		}
		total += part * square(float64(unit[0]))
	}
	return total
}

func (q *exactAccumulator) mean(samples int64, _ func(i int) int) (exact.Scale, bool) {
	next := q.scale.Next(q.step)
	if !q.scale.Fits(q.step) {
		return next, false
	}
	for i, sums := range q.parts {
		q.scale.Mean(i, q.bufs.staging.views[i], sums, samples)
	}
	return next, true
}

// bothWaits waits for two calls.
type bothWaits [2]pending

// Wait waits for both to end and returns the first error.
func (b bothWaits) Wait(ctx context.Context) error {
	first, second := b[0].Wait(ctx), b[1].Wait(ctx)
	if first != nil {
		return first
	}
	return second
}
