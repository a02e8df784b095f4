package trainer

import (
	"context"
	"errors"
	"fmt"
)

// layout places the parameters one after the other, in declaration order, in one
// flat vector, and groups them into buckets.
type layout struct {
	params  []Param
	offsets []int // of each parameter in the flat vector, and the total
	buckets []bucket
	of      []int // bucket of each parameter
}

// bucket is a group of neighbouring parameters that is reduced in one call.
type bucket struct {
	firstParam, endParam int
	lo, hi               int // in the flat vector
}

// newLayout groups params from the last to the first, as that is the order in which
// a backward pass finishes them. A bucket has at least one parameter and otherwise
// at most limit elements. All peers must come to the same buckets, so nothing but
// sizes decides.
func newLayout(params []Param, limit int) layout {
	l := layout{params: params, offsets: []int{0}, of: make([]int, len(params))}
	for i, p := range params {
		l.offsets = append(l.offsets, l.offsets[i]+len(p.Data))
	}
	for end := len(params); end > 0; {
		first := end - 1
		for first > 0 && l.offsets[end]-l.offsets[first-1] <= limit {
			first--
		}
		for i := first; i < end; i++ {
			l.of[i] = len(l.buckets)
		}
		l.buckets = append(l.buckets, bucket{first, end, l.offsets[first], l.offsets[end]})
		end = first
	}
	return l
}

// size is the length of a flat vector.
func (l layout) size() int { return l.offsets[len(l.params)] }

// vector returns a zeroed vector without gaps.
func (l layout) vector() vector {
	flat := make([]float32, l.size())
	return vector{flat, cut(l, flat)}
}

// cut returns the parts of a flat vector, one per parameter.
func cut[T any](l layout, flat []T) [][]T {
	views := make([][]T, len(l.params))
	for i := range views {
		views[i] = flat[l.offsets[i]:l.offsets[i+1]:l.offsets[i+1]]
	}
	return views
}

// pending is a reduction under way: a *collective.Handle.
type pending interface {
	Wait(ctx context.Context) error
}

// reduction is the reduction of one step's buckets. Buckets are started in order
// and no other way, so that all ranks make the same calls in the same order,
// whatever the order in which their models finish parameters.
type reduction struct {
	layout  layout
	start   func(bucket) pending
	left    []int  // parameters to come, per bucket
	ready   []bool // per parameter
	started []pending
	err     error // the model's mistake
}

func newReduction(l layout, start func(bucket) pending) *reduction {
	r := &reduction{layout: l, start: start, left: make([]int, len(l.buckets)), ready: make([]bool, len(l.params))}
	for i, b := range l.buckets {
		r.left[i] = b.endParam - b.firstParam
	}
	return r
}

// done takes note that the gradient of parameter i is complete, and starts every
// bucket whose turn has come. It is the model's callback.
func (r *reduction) done(i int) {
	if i < 0 || i >= len(r.ready) || r.ready[i] {
		r.err = errors.Join(r.err, fmt.Errorf("the model called done(%d) out of range or twice", i))
		return
	}
	r.ready[i] = true
	r.left[r.layout.of[i]]--
	for k := len(r.started); k < len(r.left) && r.left[k] == 0; k++ {
		r.started = append(r.started, r.start(r.layout.buckets[k]))
	}
}

// check says whether the model called done as it should, after its last call.
func (r *reduction) check() error {
	for i, ready := range r.ready {
		if !ready && r.err == nil {
			return fmt.Errorf("the model did not call done(%d) for %s", i, r.layout.params[i].Name)
		}
	}
	return r.err
}

// startAll starts every bucket, where there is no backward pass to wait for.
func (r *reduction) startAll() {
	for i := range r.ready {
		r.done(i)
	}
}

// wait waits for all that was started and returns the first error. It leaves no
// call behind that still uses the buffers: the end of ctx ends the calls, not
// the waiting.
func (r *reduction) wait(ctx context.Context) error {
	var first error
	for k, p := range r.started {
		if err := p.Wait(context.WithoutCancel(ctx)); err != nil && first == nil {
			first = fmt.Errorf("reduce bucket %d of %d: %w", k+1, len(r.left), err)
		}
	}
	return first
}
