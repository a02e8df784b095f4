package trainer

import (
	"context"
	"fmt"
	"slices"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/optim"
)

// accumulator holds the gradient sums of a contribution and reduces them over all ranks. There is
// one implementation for each mode of summation: float32, float32 in a lossy coding, and integers
// in exact mode.
type accumulator interface {
	// clear empties the contribution; scale is the scale of the gradients that are added next.
	clear(scale exact.Scale)
	// groups joins microbatches that may be computed together, and returns the groups. Each
	// microbatch and each group is a list of samples.
	groups(micros [][]int) [][]int
	// collect returns a sink for the gradients of a call with the given microbatches, which groups has
	// joined. The sink calls
	// ready(i, from) when the call of the model has completed the elements [from:] of parameter i.
	// The elements are final if no later call adds to the contribution.
	collect(micros []int, ready func(i, from int)) sink
	// reduce starts the reduction of a bucket over all ranks. The contribution stays unchanged, so
	// that the reduction can be repeated after a failure.
	reduce(ctx context.Context, c bucketComm, b bucket) pending
	// migrate moves the operands of reductions into shared memory, where the ranks of a host reduce
	// them without a copy. If migrate returns an error, no operand has moved.
	migrate(h *sharedBuffers) error
	// fault returns the first parameter whose contribution is not finite.
	fault() fault
	// square returns the squared Euclidean norm of this peer's own sums, for the estimate of the
	// gradient noise.
	square() float64
	// mean turns the reduced sums of all ranks into the mean gradient, in the staging buffer. In
	// parameter i only the first left(i) elements are still sums; the others are means already.
	// fits is false if the step has to be computed again. scale is the scale of the next step, or
	// of the next attempt if fits is false. divisor is what the sums are divided by.
	mean(divisor float64, left func(i int) int) (scale exact.Scale, fits bool)
}

// sink receives the gradients of one call of the model. The gradients are in the contribution once
// end has returned nil. Before that, and after an error, the contribution is invalid.
type sink struct {
	grad [][]float32              // gradient memory, by parameter
	done func(group, i, from int) // called by the model like Gate.Done
	end  func() error             // called after the call of the model
}

// gradientBuffers are two buffers that swap roles. staging holds the uncommitted step: sums, their
// mean, or an update from another peer. applied holds the mean gradient of the last committed
// step, from which other peers can commit that step too, even while the next step is being
// reduced into staging.
type gradientBuffers struct {
	staging, applied vector
	// checked is set if the staged means are known to be finite, and copied if the memory of the model
	// has a copy of them for its Updater.
	checked, copied bool
}

// vector has one float32 for each element of each parameter.
type vector struct {
	flat  []float32   // all parameters, one after the other
	views [][]float32 // subslices of flat, by parameter
}

// swap makes the staged gradient the applied gradient, by exchanging the two buffers.
func (g *gradientBuffers) swap() { *g = gradientBuffers{staging: g.applied, applied: g.staging} }

// floatAccumulator sums in float32. The sums of all ranks are reduced into the staging buffer.
type floatAccumulator struct {
	// layout is the layout of the parameters in the vectors.
	layout layout
	own    vector           // this peer's sums
	bufs   *gradientBuffers // results of reductions
	given  bool             // own is memory of the model (Model.Grads), which stays where it is
	copies bool             // own gets a copy of the means, for an Updater
	// bad names the parameter of the first value that was not finite; faultNone if there is none.
	bad fault
	// unchecked leaves values that are not finite to the Updater (Model.NotFinite).
	unchecked bool
}

// newFloatAccumulator allocates the memory of a contribution.
func newFloatAccumulator(l layout) (*floatAccumulator, *gradientBuffers) {
	bufs := &gradientBuffers{staging: l.vector(), applied: l.vector()}
	return &floatAccumulator{layout: l, own: l.vector(), bufs: bufs}, bufs
}

// use follows the model: its memory (Model.Grads), if there is any, becomes the memory of the sums.
func (f *floatAccumulator) use(m Model) error {
	f.unchecked = m.NotFinite
	given := m.Grads
	if given == nil {
		return nil
	}
	n := f.layout.size()
	if cap(given[0]) < n {
		return fmt.Errorf("trainer: the first vector of Model.Grads has room for %d elements, want %d, for all gradients", cap(given[0]), n)
	}
	flat := given[0][:n:n]
	f.own, f.given, f.copies = vector{flat, cut(f.layout, flat)}, true, m.Updater != nil
	for i, v := range f.own.views {
		if &v[0] != &given[i][0] {
			return fmt.Errorf("trainer: Model.Grads of parameter %d does not begin where the vector before it ends", i)
		}
	}
	return nil
}

// clear zeroes the sums; float32 has no scale.
func (f *floatAccumulator) clear(exact.Scale) {
	clear(f.own.flat)
	f.bad = faultNone
}

// groups joins all microbatches: float32 sums need no separation.
func (f *floatAccumulator) groups(micros [][]int) [][]int { return [][]int{slices.Concat(micros...)} }

// collect lets the model add to the sums in place.
func (f *floatAccumulator) collect(_ []int, ready func(i, from int)) sink {
	return sink{f.own.views, func(_, i, from int) { ready(i, from) }, func() error { return nil }}
}

// reduce reduces a bucket from own into staging.
func (f *floatAccumulator) reduce(ctx context.Context, c bucketComm, b bucket) pending {
	f.scan(b)
	return collective.IAllReduce(ctx, c.long(), f.bufs.staging.flat[b.lo:b.hi], f.own.flat[b.lo:b.hi], collective.Sum[float32])
}

// migrate moves all three vectors, because both gradient buffers serve as the target of
// reductions in turn. Memory of the model stays where it is.
func (f *floatAccumulator) migrate(h *sharedBuffers) error {
	vectors := []*vector{&f.bufs.staging, &f.bufs.applied, &f.own}
	if f.given {
		if !collective.IsShared(h.comm, f.own.flat) { // a reduction between it and shared memory copies both
			return nil
		}
		vectors = vectors[:2]
	}
	var flat [][]float32
	for _, v := range vectors {
		flat = append(flat, v.flat)
	}
	there, err := migrateVectors(h, flat...)
	if err != nil {
		return err
	}
	for i, v := range vectors {
		*v = vector{there[i], cut(f.layout, there[i])}
	}
	return nil
}

// scan checks a bucket for values that are not finite. It runs just before the reduction, so it
// also brings the bucket into the cache. A NaN or an infinity of one rank would reach the
// parameters of all ranks.
func (f *floatAccumulator) scan(b bucket) {
	for i := b.firstParam; i < b.endParam; i++ {
		lo, hi := f.layout.part(b, i)
		if f.bad == faultNone && !f.unchecked && !kernel.Finite(f.own.flat[lo:hi]) {
			f.bad = faultGradient + fault(i)
		}
	}
}

// fault implements accumulator; the result is final when every bucket has been reduced.
func (f *floatAccumulator) fault() fault { return f.bad }

// square implements accumulator.
func (f *floatAccumulator) square() float64 { return square(optim.Norm(f.own.views)) }

// mean divides the sums. Every float32 step fits. It also checks the means, and copies them for an Updater
// while they are in the cache: all ranks have the sums, so the contribution is not needed any more.
func (f *floatAccumulator) mean(divisor float64, left func(i int) int) (exact.Scale, bool) {
	all := true
	for i, sum := range f.bufs.staging.views {
		sum = sum[:left(i)]
		for at := 0; at < len(sum); at += updateBlock {
			part := sum[at:min(at+updateBlock, len(sum))]
			all = makeMean(part, divisor) && all
			if f.copies {
				copy(f.own.views[i][at:], part)
			}
		}
	}
	f.bufs.checked, f.bufs.copied = all, f.copies
	return exact.Scale{}, true
}

// makeMean divides a sum, and reports whether the result is finite.
func makeMean(sum []float32, divisor float64) bool {
	// Every rank computes the same factor and the same products, so the means are equal bit for
	// bit.
	return kernel.Scale(sum, float32(1/divisor))
}

// exactAccumulator sums in integers (package exact), so that the result does not depend on the
// order of additions. Each microbatch is computed alone in the staging buffer, which is free until
// the mean is written to it. Both gradient buffers are aligned to exact.Alignment, so that a
// microbatch has the same bits in either of them.
type exactAccumulator struct {
	layout layout
	bufs   *gradientBuffers
	// scale is the scale of the attempt, equal at all ranks.
	scale exact.Scale
	views [][]int32   // own, by parameter
	own   []int32     // this peer's sums, all parameters; operand of the reduction
	all   []int32     // sums of all ranks; result of the reduction
	parts [][]int32   // views of all, by parameter
	given [][]float32 // the model's memory for a microbatch (Model.Grads); nil if it is staging
	// peaks are the largest magnitudes in the gradients of this peer's microbatches, by parameter.
	peaks []exact.Peak
	// left has, by microbatch and parameter, the length of the prefix that is not in the sums yet.
	left [][]int
	// first has the gradient of the first microbatch of the step, if this peer has computed it; nil if
	// it is not needed. zero is its index in the present call, or -1.
	first [][]float32
	zero  int
	// step has the peaks of all ranks, after the reduction.
	step []exact.Peak
}

// newExactAccumulator allocates the memory of a contribution.
func newExactAccumulator(l layout) (*exactAccumulator, *gradientBuffers) {
	var sizes []int
	for _, p := range l.params {
		sizes = append(sizes, len(p.Data))
	}
	bufs := &gradientBuffers{}
	// The sums are reduced as integers and converted to the floating-point vectors of staging.
	bufs.staging.flat, bufs.staging.views = exact.Views(sizes)
	bufs.applied.flat, bufs.applied.views = exact.Views(sizes)
	n := len(l.params)
	q := &exactAccumulator{layout: l, bufs: bufs, own: make([]int32, l.size()), all: make([]int32, l.size()),
		peaks: make([]exact.Peak, n), step: make([]exact.Peak, n)}
	q.views, q.parts = cut(l, q.own), cut(l, q.all)
	return q, bufs
}

// clear zeroes sums and peaks. The scale holds for the whole attempt: integers with different
// scales cannot be added.
func (e *exactAccumulator) clear(scale exact.Scale) {
	e.scale = scale
	clear(e.own)
	clear(e.peaks)
}

// groups keeps the microbatches separate: the gradient of each microbatch must have the same bits as
// if the microbatch were computed alone.
func (e *exactAccumulator) groups(micros [][]int) [][]int { return micros }

// collect quantises each gradient as soon as the model has completed it, so that the reduction of
// that gradient can begin while the model computes the next gradient.
func (e *exactAccumulator) collect(micros []int, ready func(i, from int)) sink {
	for _, g := range e.grads() {
		clear(g)
	}
	last := len(micros) - 1
	e.begin(micros)
	var early error
	// taken adds a part of a group's gradient to the sums. The sums of that part are final when the
	// last group has added its gradient, so only calls for the last group reach ready.
	taken := func(k, i, from int) {
		known := k >= 0 && k <= last && i >= 0 && i < len(e.views) // otherwise ready reports the model's mistake
		if known {
			e.take(k, i, from, k < last)
		}
		switch {
		case k != last:
		case known && e.lacks(i, from):
			// An earlier group would still change a gradient that is about to be reduced.
			early = fmt.Errorf("the model called Done for parameter %d in the last group first: call it in the order of the groups", i)
		default:
			ready(i, from)
		}
	}
	return sink{e.grads(), taken, func() error {
		if early != nil {
			return early
		}
		// A gradient of the last group that was not declared complete is complete now.
		for i := range e.views {
			e.take(last, i, 0, false)
		}
		return e.whole()
	}}
}

// begin prepares for a call with the given microbatches, none of which is in the sums.
func (e *exactAccumulator) begin(micros []int) {
	e.left, e.zero = e.left[:0], slices.Index(micros, 0)
	for range micros {
		var left []int
		for _, v := range e.views {
			left = append(left, len(v))
		}
		e.left = append(e.left, left)
	}
}

// lacks reports whether elements [from:] of parameter i are still missing in the sums, from any
// microbatch before the last.
func (e *exactAccumulator) lacks(i, from int) bool {
	return slices.ContainsFunc(e.left[:len(e.left)-1], func(left []int) bool { return left[i] > from })
}

// grads returns the memory in which a microbatch is computed, by parameter.
func (e *exactAccumulator) grads() [][]float32 {
	if e.given != nil {
		return e.given
	}
	return e.bufs.staging.views
}

// take quantises the elements [from:] of the gradient of parameter i in microbatch k, and adds them
// to the sums. It skips elements that were added before. If others is true, other microbatches
// follow, and take zeroes the elements in the memory of the gradients.
func (e *exactAccumulator) take(k, i, from int, others bool) {
	end := e.left[k][i]
	if from < 0 || from >= end {
		return
	}
	e.left[k][i] = from
	part := e.grads()[i][from:end]
	if k == e.zero && e.first != nil {
		copy(e.first[i][from:end], part)
	}
	e.peaks[i] = max(e.peaks[i], e.scale.Add(i, e.views[i][from:end], part))
	if others {
		clear(part)
	}
}

// whole returns an error if the model has not declared some gradient of some group complete.
func (e *exactAccumulator) whole() error {
	for k, left := range e.left {
		if i := slices.IndexFunc(left, func(n int) bool { return n > 0 }); i >= 0 {
			return fmt.Errorf("Done(%d, 0) of group %d was not called: a Grouped model has to call Done for every parameter in every group", i, k)
		}
	}
	return nil
}

// reduce starts the reduction of bucket b, and with the last bucket also the reduction of the peaks.
func (e *exactAccumulator) reduce(ctx context.Context, c bucketComm, b bucket) pending {
	p := collective.IAllReduce(ctx, c.long(), e.all[b.lo:b.hi], e.own[b.lo:b.hi], collective.Sum[int32])
	if !b.last {
		return p
	}
	return bothWaits{p, collective.IAllReduce(ctx, c.short(), e.step, e.peaks, collective.Max[exact.Peak])}
}

// migrate moves only the integers. The float32 buffers are not reduced, and need their own
// alignment for computing.
func (e *exactAccumulator) migrate(h *sharedBuffers) error {
	there, err := migrateVectors(h, e.own, e.all)
	if err != nil {
		return err
	}
	e.own, e.all = there[0], there[1]
	e.views, e.parts = cut(e.layout, e.own), cut(e.layout, e.all)
	return nil
}

// fault returns the first parameter with an infinite or NaN peak.
func (e *exactAccumulator) fault() fault {
	if i := exact.NotFinite(e.peaks); i >= 0 {
		return faultGradient + fault(i)
	}
	return faultNone
}

// square returns the squared norm of the sums that the integers represent. The value of one unit of
// parameter i is the mean of the integer 1 over one sample.
func (e *exactAccumulator) square() float64 {
	total := 0.0
	for i, sums := range e.views {
		var unit [1]float32
		e.scale.Mean(i, unit[:], []int32{1}, 1)
		part := 0.0
		for _, v := range sums {
			part += square(float64(v))
		}
		total += part * square(float64(unit[0]))
	}
	return total
}

// mean converts the integers to the mean gradient. If the peak of some rank exceeds the range of
// the scale, integers may have overflowed. Then mean returns false, and the step is computed again
// with the returned scale.
func (e *exactAccumulator) mean(divisor float64, _ func(i int) int) (exact.Scale, bool) {
	next := e.scale.Next(e.step)
	if !e.scale.Fits(e.step) {
		return next, false
	}
	for i, sums := range e.parts {
		e.scale.Mean(i, e.bufs.staging.views[i], sums, divisor)
	}
	return next, true
}

// bothWaits is a pending for two calls.
type bothWaits [2]pending

// Wait waits for both calls to end and returns the first error.
func (b bothWaits) Wait(ctx context.Context) error {
	first, second := b[0].Wait(ctx), b[1].Wait(ctx)
	if first != nil {
		return first
	}
	return second
}

// square returns x*x.
func square(x float64) float64 { return x * x }
