package trainer

import (
	"fmt"
	"slices"
	"sort"

	"github.com/cespare/xxhash/v2"
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

// describe formats the number and size of the parameters, and a hash of their names and shapes.
func (l layout) describe() string {
	h := xxhash.New()
	for _, p := range l.params {
		fmt.Fprintf(h, "%q %v\n", p.Name, p.Shape) // never fails
	}
	return fmt.Sprintf("%d of %d elements, shapes %016x", len(l.params), l.size(), h.Sum64())
}

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
