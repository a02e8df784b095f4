package shm

import (
	"math/bits"
	"time"
	"unsafe"

	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// The bytes that a rank reduces before it reports progress to Lane.Watch. A reduction in pairs
// uses short blocks, so that partial results stay in the cache for the next vector.
const (
	directBlock = 64 << 20  // bytes of a block in a reduction in one pass
	pairBlock   = 256 << 10 // bytes of a block in a reduction in pairs
)

// The direct engine. Each rank reduces its chunk of all source vectors and writes the result to
// all destination vectors. So each sum is computed once and each result written once, and ranks
// wait for each other only before and after. A rank that shares its core with others may find that
// another rank has stolen its chunk.
//
// A late rank is a rank that was put out of the group in the middle of a call, for example because
// its process was stopped, and that continues later. A late rank may still write to the destination
// vectors of the other ranks. So if a call fails, its caller abandons the pages of dst
// (Arena.Abandon). Pages at the two ends of dst, which dst shares with other data, cannot be
// abandoned. So other ranks never write there: the operands for these short parts are sent inline
// in the slot, and each rank reduces them for itself.
//
// A late rank may also read source vectors that the other ranks have changed since. So a rank whose
// call fails sets chunk.failed before it returns. Every rank checks these flags after all chunks
// are reduced, and its call succeeds only if no flag is set.

// views holds the vectors of all ranks of a lane, as this process has mapped them. All calls use
// the same views: an allocation would take longer than a short call.
type views struct {
	dst, src, to, from [][]byte // dst and src by rank; to and from are the arguments of the reduction
}

// newViews returns the views of a lane with this number of ranks.
func newViews(ranks int) views {
	return views{make([][]byte, ranks), make([][]byte, ranks), make([][]byte, ranks), make([][]byte, ranks)}
}

// sources returns the vectors to reduce next; the caller sets all of them.
func sources[T dtype.Number](v *views) [][]T { return typed[T](v.from) }

// targets returns the vectors for the results; the caller sets the vectors that it uses.
func targets[T dtype.Number](v *views) [][]T { return typed[T](v.to) }

// typed returns the slice headers of v as slices of T, without an allocation. The caller sets each
// header to a vector of T before use, so that lengths count elements.
func typed[T dtype.Number](v [][]byte) [][]T {
	return unsafe.Slice((*[]T)(unsafe.Pointer(unsafe.SliceData(v))), len(v))
}

// wholeEdges reports whether the parts of the vectors outside their whole pages have whole groups of
// the reduction. It is the same at all ranks of vectors that mapped has accepted.
func wholeEdges[T dtype.Number](l *Lane, v Vectors[T]) bool {
	size := kernel.Size[T]()
	head, tail := l.slotOf(l.rank).offsets.Dst.PageEdges(len(v.Src) * size)
	return head/size%v.Reduce.group() == 0 && tail/size%v.Reduce.group() == 0
}

// direct runs the direct engine on vectors that all ranks have mapped.
func direct[T dtype.Number](l *Lane, length int, fold Reducer[T]) error {
	l.directCalls++
	size := kernel.Size[T]()
	head, tail := l.slotOf(l.rank).offsets.Dst.PageEdges(length * size)
	reduceEdge(l, 0, head/size, 0, fold)
	reduceEdge(l, length-tail/size, length, head, fold)
	bytes := length * size
	for i := range l.size {
		// First this rank's own chunk, then the chunks that it may steal.
		owner := (l.rank + i) % l.size
		if i > 0 && !l.canSteal(owner, bytes) || !l.claim(owner) {
			continue
		}
		first, end := l.chunkBounds(head/size, length-tail/size, cacheLine/size*fold.group(), owner)
		reduceChunk(l, bytes, first, end, fold)
		// Ranks in finish wait for this counter.
		l.publish(&l.areas[owner].chunk.folded, l.directCalls)
	}
	return l.finish()
}

// reduceChunk reduces the elements from first to end, in the store mode that takes the least time.
// bytes is the length of the vectors.
func reduceChunk[T dtype.Number](l *Lane, bytes, first, end int, fold Reducer[T]) {
	switch {
	case l.exceedsCache(bytes):
		reduceRange(l, first, end, fold, l.size)
	case !l.policies.storeModes || bytes < l.policies.chooseFrom || first == end:
		reduceRange(l, first, end, fold, 0)
	default:
		p := &l.policies.choosers[bits.Len(uint(bytes))]
		w, begun := p.choose(), time.Now()
		reduceRange(l, first, end, fold, w.nonTemporalCount(l.size))
		p.record(w, (end-first)*kernel.Size[T](), time.Since(begun))
	}
}

// reduceRange reduces the elements from first to end into the vectors of all ranks, beginning with
// this rank's vector. The last vectors, as many as nonTemporal says, are written by non-temporal
// stores.
func reduceRange[T dtype.Number](l *Lane, first, end int, fold Reducer[T], nonTemporal int) {
	step := directBlock / kernel.Size[T]()
	if fold.All == nil {
		step = min(pairBlock, len(l.blocks[l.rank])) / kernel.Size[T]() // partial results go to the rank's blocks
	}
	step -= step % fold.group()
	for ; first < end; first += step {
		reduceBlock(l, first, min(first+step, end), fold, nonTemporal)
		l.watch(-1)
	}
}

// reduceBlock reduces the elements from first to end in one call of the Reducer. Each rank starts
// with its own destination, so that ranks do not write to the same memory at the same time.
func reduceBlock[T dtype.Number](l *Lane, first, end int, fold Reducer[T], nonTemporal int) {
	to, from := targets[T](&l.views), sources[T](&l.views)
	for r := range l.size {
		to[r] = kernel.Elements[T](l.views.dst[(l.rank+r)%l.size])[first:end]
		from[r] = kernel.Elements[T](l.views.src[r])[first:end]
	}
	fold.reduceInto(to, kernel.Elements[T](l.blocks[l.rank]), from, nonTemporal) // dst may be the vector of a later rank
}

// reduceEdge reduces the elements from first to end into this rank's dst. The operands are in the
// inline vectors of all ranks, from byte skip on.
func reduceEdge[T dtype.Number](l *Lane, first, end, skip int, fold Reducer[T]) {
	if first == end {
		return
	}
	to, from := targets[T](&l.views)[:1], sources[T](&l.views)
	to[0] = kernel.Elements[T](l.views.dst[l.rank])[first:end]
	for r := range from {
		from[r] = kernel.Elements[T](l.slotOf(r).inline[skip:])[:end-first]
	}
	fold.reduceInto(to, to[0], from, 0)
}
