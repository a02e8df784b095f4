package trainer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sort"
)

// layout places the parameters one after the other, in declaration order, in one flat vector, and
// cuts that vector into buckets (as DDP does: Li et al., PyTorch Distributed, 2020).
type layout struct {
	params []Param // in declaration order
	// offsets has the offset of each parameter in the flat vector, and the total length last.
	offsets []int
	pieces  []piece  // by position in the flat vector
	buckets []bucket // in the order of the calls
}

// bucket is a range of the flat vector that is reduced in one call.
type bucket struct {
	number               int  // in the order of the calls, from 0
	lo, hi               int  // range in the flat vector
	firstParam, endParam int  // range of the parameters that have elements in the bucket
	last                 bool // the last bucket to be reduced
}

const (
	// leastBucket is the size, in elements, to which buckets shrink towards the end of a backward
	// pass: 32 KiB. At 1 Gbit/s sending them takes about as long as the latency of a message.
	leastBucket = 8 << 10
	// leastPart bounds the number of calls for a large model: a bucket may have at least the part
	// 1/leastPart of the elements that are left.
	leastPart = 16
)

// piece is a range of the flat vector that becomes complete at once. It ends where the next piece
// begins.
type piece struct {
	lo   int // position in the flat vector
	turn int // position in the order of completion
}

// newLayout places the parameters, in buckets of limit elements. Without Model.Order parameters
// complete from the last to the first.
func newLayout(params []Param, limit int) layout {
	l := layout{params: params, offsets: []int{0}}
	for i, p := range params {
		l.pieces = append(l.pieces, piece{l.offsets[i], len(params) - 1 - i})
		l.offsets = append(l.offsets, l.offsets[i]+len(p.Data))
	}
	l.divide(limit, limit)
	return l
}

// completeIn sets the order in which the model completes its gradients (Model.Order), for the
// buckets that the next call of divide makes.
func (l *layout) completeIn(order []Piece) error {
	var pieces []piece
	// from[i] is the first element of parameter i that the order has covered so far.
	from := make([]int, len(l.params))
	for i, p := range l.params {
		from[i] = len(p.Data)
	}
	for turn, p := range order {
		if p.Param < 0 || p.Param >= len(from) || p.From < 0 || p.From >= from[p.Param] {
			return fmt.Errorf("trainer: the model's Order has %+v at index %d: it is out of range, or covered by an earlier piece", p, turn)
		}
		from[p.Param] = p.From
		pieces = append(pieces, piece{l.offsets[p.Param] + p.From, turn})
	}
	for i, left := range from {
		if left > 0 {
			return fmt.Errorf("trainer: in the model's Order %d elements of %s are missing", left, l.params[i].Name)
		}
	}
	slices.SortFunc(pieces, func(a, b piece) int { return a.lo - b.lo })
	l.pieces = pieces
	return nil
}

// pieceAt returns the piece that contains an element of the flat vector.
func (l *layout) pieceAt(at int) int {
	return sort.Search(len(l.pieces), func(k int) bool { return l.pieces[k].lo > at }) - 1
}

// divide cuts the flat vector into buckets, from its end, which most backward passes complete
// first. A bucket has about limit elements, or more if many elements are left. The last bucket
// becomes complete when nothing is left to compute, so nothing hides the time of its reduction. To
// keep the last bucket small, a bucket of more than least elements has at most half of the remaining
// elements. The result depends on arguments and layout only: all peers must make the same buckets.
func (l *layout) divide(limit, least int) {
	l.buckets = nil
	for hi := l.size(); hi > 0; {
		most := min(max(limit, hi/leastPart), max(least, hi/2))
		lo := l.begin(max(0, hi-most, l.before(hi)), hi, most/4)
		l.buckets = append(l.buckets, bucket{lo: lo, hi: hi, firstParam: l.paramAt(lo), endParam: l.paramAt(hi-1) + 1})
		hi = lo
	}
	// Calls are made in the order of completion, which equals the order of cutting only for
	// models that complete their parameters from the last to the first.
	slices.SortStableFunc(l.buckets, func(a, b bucket) int { return l.completes(a) - l.completes(b) })
	for k := range l.buckets {
		l.buckets[k].number, l.buckets[k].last = k, k == len(l.buckets)-1
	}
}

// begin returns the start of a bucket that ends at hi and may begin at lo or later. It prefers the
// start of a parameter, so that a wait for one parameter does not include the next parameter. Its
// second choice is the start of a piece, because a bucket that begins inside a piece waits until the
// whole piece is complete. If neither leaves at least the number of elements in some for the bucket,
// begin returns lo.
func (l *layout) begin(lo, hi, some int) int {
	some = max(some, 1)
	if whole := l.offsets[sort.SearchInts(l.offsets, lo)]; hi-whole >= some {
		return whole
	}
	k := sort.Search(len(l.pieces), func(k int) bool { return l.pieces[k].lo >= lo })
	if k < len(l.pieces) && hi-l.pieces[k].lo >= some {
		return l.pieces[k].lo
	}
	return lo
}

// before returns the lowest start of a bucket that ends at hi. The pieces between that start and hi
// become complete one directly after the other, from hi downward. A piece out of this order gets
// another bucket, so that no bucket waits for a piece that completes much later.
func (l *layout) before(hi int) int {
	k := l.pieceAt(hi - 1)
	for k > 0 && l.pieces[k-1].turn == l.pieces[k].turn+1 {
		k--
	}
	return l.pieces[k].lo
}

// completes returns the position, in the order of completion, of the last piece of a bucket.
func (l *layout) completes(b bucket) int {
	last := 0
	for _, p := range l.pieces[l.pieceAt(b.lo) : l.pieceAt(b.hi-1)+1] {
		last = max(last, p.turn)
	}
	return last
}

// paramAt returns the parameter that contains an element of the flat vector.
func (l layout) paramAt(at int) int { return sort.SearchInts(l.offsets, at+1) - 1 }

// priority returns the urgency of a bucket's sums. The next step reads the first parameters first,
// so their buckets overtake others (priority scheduling, as in ByteScheduler: Peng et al., 2019).
// Each parameter is read from its end to its beginning, so its buckets have descending priorities in
// that order, and run one after the other. Buckets of equal priority would share the link, and all
// would complete late.
func (l layout) priority(b bucket) int32 {
	n := len(l.buckets)
	return int32((len(l.params)-b.firstParam)*n - b.number)
}

// part returns the range of the flat vector that bucket b and parameter param have in common.
func (l layout) part(b bucket, param int) (lo, hi int) {
	return max(b.lo, l.offsets[param]), min(b.hi, l.offsets[param+1])
}

// size returns the length of a flat vector.
func (l layout) size() int { return l.offsets[len(l.params)] }

// vector returns a zeroed vector without gaps between parameters.
func (l layout) vector() vector {
	flat := make([]float32, l.size())
	return vector{flat, cut(l, flat)}
}

// cut returns the subslices of a flat vector, one per parameter.
func cut[T any](l layout, flat []T) [][]T {
	views := make([][]T, len(l.params))
	for i := range views {
		views[i] = flat[l.offsets[i]:l.offsets[i+1]:l.offsets[i+1]]
	}
	return views
}

// pending is a reduction under way, for example a *collective.Handle.
type pending interface {
	Wait(ctx context.Context) error
}

// reduction manages the reduction of one step's buckets. It starts buckets strictly in the layout's
// order, so that all ranks make the same calls in the same order, even if their models complete
// gradients in different orders.
type reduction struct {
	layout  layout
	start   func(bucket) pending // starts the reduction of a bucket
	yield   func()               // lets calls under way make progress
	from    []int                // by parameter: the gradient is complete from this element on
	started []pending            // by bucket
	err     error                // the model's mistake
}

// newReduction returns a reduction without complete gradients; start starts the reduction of a
// bucket.
func newReduction(l layout, start func(bucket) pending) *reduction {
	r := &reduction{layout: l, start: start, yield: runtime.Gosched, from: make([]int, len(l.params))}
	for i, p := range l.params {
		r.from[i] = len(p.Data)
	}
	return r
}

// ready records that the elements [from:] of the gradient of parameter i are complete, and starts
// every bucket whose turn has come. The model calls ready through Batch.Done.
//
// A call that was just started has sent nothing yet. If the model computes on the only processor,
// the first send would wait until the scheduler preempts the model, 10 to 20 ms later. So ready
// yields until the calls block on the network. The yield also handles messages that have arrived for
// other calls.
func (r *reduction) ready(i, from int) {
	if i < 0 || i >= len(r.from) || from < 0 || from >= r.from[i] {
		r.err = errors.Join(r.err, fmt.Errorf("the model called Done(%d, %d) out of range, twice or out of order: call it once for each part, in descending order of from", i, from))
		return
	}
	r.from[i] = from
	before := len(r.started)
	// Buckets start in one order at all ranks, as collective calls must. A bucket that is complete
	// early waits for those before it.
	for len(r.started) < len(r.layout.buckets) && r.complete(r.layout.buckets[len(r.started)]) {
		r.started = append(r.started, r.start(r.layout.buckets[len(r.started)]))
	}
	if len(r.started) > before {
		r.yield()
	}
}

// complete reports whether all gradients of a bucket are complete.
func (r *reduction) complete(b bucket) bool {
	for i := b.firstParam; i < b.endParam; i++ {
		if lo, _ := r.layout.part(b, i); r.layout.offsets[i]+r.from[i] > lo {
			return false
		}
	}
	return true
}

// startAll starts the remaining buckets, when nothing is left to compute.
func (r *reduction) startAll() {
	for i, from := range r.from {
		if from > 0 {
			r.ready(i, 0)
		}
	}
}

// waitFor waits for the sums of the elements [from, end) of parameter i. Their buckets must have
// been started.
func (r *reduction) waitFor(ctx context.Context, i, from, end int) error {
	first := r.layout.offsets[i]
	for k, b := range r.layout.buckets {
		if b.hi <= first+from || b.lo >= first+end {
			continue
		}
		if err := r.started[k].Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether the sums of the elements [from, end) of parameter i have arrived.
func (r *reduction) has(i, from, end int) bool {
	now, cancel := context.WithCancel(context.Background())
	cancel() // with an ended context waitFor only polls
	return r.waitFor(now, i, from, end) == nil
}

// wait waits for all started calls and returns the first error. No call that uses the buffers is
// left under way: the end of ctx ends the calls, but not this wait.
func (r *reduction) wait(ctx context.Context) error {
	var first error
	for k, p := range r.started {
		if err := p.Wait(context.WithoutCancel(ctx)); err != nil && first == nil {
			first = fmt.Errorf("reduce bucket %d of %d: %w", k+1, len(r.layout.buckets), err)
		}
	}
	return first
}
