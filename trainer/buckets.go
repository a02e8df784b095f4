package trainer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sort"
)

// layout places the parameters one after the other, in declaration order, in one
// flat vector, and cuts that into buckets.
type layout struct {
	params  []Param
	offsets []int   // of each parameter in the flat vector, and the total
	pieces  []piece // by their place
	buckets []bucket
}

// bucket is a part of the flat vector that is reduced in one call.
type bucket struct {
	number               int // from 0, in the order of the calls
	lo, hi               int // in the flat vector
	firstParam, endParam int // those that have elements in it
	last                 bool
}

const (
	// leastBucket is the elements to which buckets become smaller at the end of a backward
	// pass: 32 KiB, which a network of 1 Gbit/s takes as long for as for a message's way.
	leastBucket = 8 << 10
	// leastPart is which part of what is left a bucket has at least, so that the calls of a
	// large model are not too many.
	leastPart = 16
)

// piece is a part of the flat vector, up to the next one, that is complete at once.
type piece struct {
	lo   int
	turn int // in the order in which pieces are complete
}

// newLayout places the parameters, in buckets of limit elements.
func newLayout(params []Param, limit int) layout {
	l := layout{params: params, offsets: []int{0}}
	for i, p := range params {
		l.pieces = append(l.pieces, piece{l.offsets[i], len(params) - 1 - i})
		l.offsets = append(l.offsets, l.offsets[i]+len(p.Data))
	}
	l.divide(limit, limit)
	return l
}

// completeIn sets the order in which a model says that its gradients are complete, for the
// buckets of the next divide.
func (l *layout) completeIn(order []Piece) error {
	var pieces []piece
	from := make([]int, len(l.params))
	for i, p := range l.params {
		from[i] = len(p.Data)
	}
	for turn, p := range order {
		if p.Param < 0 || p.Param >= len(from) || p.From < 0 || p.From >= from[p.Param] {
			return fmt.Errorf("trainer: the model's Order has %+v as number %d, out of range or after one from less on", p, turn)
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

// pieceAt returns the piece that has an element of the flat vector.
func (l *layout) pieceAt(at int) int {
	return sort.Search(len(l.pieces), func(k int) bool { return l.pieces[k].lo > at }) - 1
}

// divide cuts the vector into buckets, from its end, as that is the order in which most
// backward passes finish it. They have limit elements, and more if many are left. The last
// one is complete when there is nothing left to compute, and all wait for it: so that it is
// small, a bucket has at most half of what is left, down to least. All peers must come to the
// same buckets.
func (l *layout) divide(limit, least int) {
	l.buckets = nil
	for hi := l.size(); hi > 0; {
		most := min(max(limit, hi/leastPart), max(least, hi/2))
		lo := l.begin(max(0, hi-most, l.before(hi)), hi, most/4)
		l.buckets = append(l.buckets, bucket{lo: lo, hi: hi, firstParam: l.paramAt(lo), endParam: l.paramAt(hi-1) + 1})
		hi = lo
	}
	slices.SortStableFunc(l.buckets, func(a, b bucket) int { return l.completes(a) - l.completes(b) })
	for k := range l.buckets {
		l.buckets[k].number, l.buckets[k].last = k, k == len(l.buckets)-1
	}
}

// begin returns where a bucket begins that ends at hi and may begin at lo: where a parameter
// begins, or else a piece, if that leaves it some elements. Who waits for a parameter need not
// wait for the one after it, too, and a bucket not for the rest of a piece.
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

// before returns where a bucket that ends at hi may begin at least: so far pieces are complete
// one right after the other, and what comes out of turn does not wait for others.
func (l *layout) before(hi int) int {
	k := l.pieceAt(hi - 1)
	for k > 0 && l.pieces[k-1].turn == l.pieces[k].turn+1 {
		k--
	}
	return l.pieces[k].lo
}

// completes returns the turn of the piece of a bucket that is complete last.
func (l *layout) completes(b bucket) int {
	last := 0
	for _, p := range l.pieces[l.pieceAt(b.lo) : l.pieceAt(b.hi-1)+1] {
		last = max(last, p.turn)
	}
	return last
}

// paramAt returns the parameter that has an element of the flat vector.
func (l layout) paramAt(at int) int { return sort.SearchInts(l.offsets, at+1) - 1 }

// priority is how urgent the sums of a bucket are. The next step needs the first parameters
// first, so their buckets overtake those of others. Each parameter it needs from its end on, so
// its buckets go one after the other: those that share the link are all complete at the end.
func (l layout) priority(b bucket) int32 {
	n := len(l.buckets)
	return int32((len(l.params)-b.firstParam)*n - b.number)
}

// part returns which elements of the flat vector a bucket and a parameter share.
func (l layout) part(b bucket, param int) (lo, hi int) {
	return max(b.lo, l.offsets[param]), min(b.hi, l.offsets[param+1])
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
	yield   func() // lets the calls go on
	from    []int  // by parameter: from there on its gradient is complete
	started []pending
	err     error // the model's mistake
}

func newReduction(l layout, start func(bucket) pending) *reduction {
	r := &reduction{layout: l, start: start, yield: runtime.Gosched, from: make([]int, len(l.params))}
	for i, p := range l.params {
		r.from[i] = len(p.Data)
	}
	return r
}

// ready takes note that the gradient of parameter i is complete from an element on, and
// starts every bucket whose turn has come. It is the model's callback. A call that was
// started has sent nothing yet: where the model computes on the only processor, that would
// wait until the scheduler interrupts it, 10 to 20 ms later. So the calls go first, until
// they wait for the network; what has come for others is looked at, too.
func (r *reduction) ready(i, from int) {
	if i < 0 || i >= len(r.from) || from < 0 || from >= r.from[i] {
		r.err = errors.Join(r.err, fmt.Errorf("the model called Done(%d, %d) out of range, twice or out of order", i, from))
		return
	}
	r.from[i] = from
	before := len(r.started)
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

// startAll starts every bucket that is left, when nothing is left to compute.
func (r *reduction) startAll() {
	for i, from := range r.from {
		if from > 0 {
			r.ready(i, 0)
		}
	}
}

// waitFor waits for the sums of the elements [from, end) of parameter i, all of which was
// started.
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

// has reports whether the sums of the elements [from, end) of parameter i are there.
func (r *reduction) has(i, from, end int) bool {
	now, cancel := context.WithCancel(context.Background())
	cancel() // who waits with it does not wait
	return r.waitFor(now, i, from, end) == nil
}

// wait waits for all that was started and returns the first error. It leaves no
// call behind that still uses the buffers: the end of ctx ends the calls, not
// the waiting.
func (r *reduction) wait(ctx context.Context) error {
	var first error
	for k, p := range r.started {
		if err := p.Wait(context.WithoutCancel(ctx)); err != nil && first == nil {
			first = fmt.Errorf("reduce bucket %d of %d: %w", k+1, len(r.layout.buckets), err)
		}
	}
	return first
}
