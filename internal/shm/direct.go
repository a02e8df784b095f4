package shm

import (
	"math/bits"
	"time"
	"unsafe"

	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// How many bytes a rank folds before it says that the call goes on. Where it folds two at a
// time, they are in its cache then for the other vectors.
const (
	directBlock = 64 << 20
	pairBlock   = 256 << 10
)

// In a direct call a rank folds its chunk out of the vectors of all and writes it to the
// vectors of all: each sum is made, and each result written, once, and ranks wait for each
// other only before that and after. A rank whose turn on its core has not come may find
// that another has folded its chunk.
//
// A rank that was put out of the job in the middle of a call, and runs on later, still writes
// to what the others had in it. They must not have anything there by then: where a call fails,
// its caller gives up the pages of dst (Arena.Abandon). For that others write whole pages only.
// What dst has of a page at either end travels with the post, as it is short, and each rank
// folds it for itself.
//
// What such a late rank reads is not what the others gave either, once these go on to use their
// src. So a rank whose call fails says so in the memory before it returns (chunk.failed), and
// the call succeeds at no rank that sees that after all chunks were folded.

// views are the vectors of all ranks of a lane, of any type, as they are mapped here. Each
// call writes them anew: to make them would take longer than a short call.
type views struct {
	dst, src, to, from [][]byte
}

func newViews(ranks int) views {
	return views{make([][]byte, ranks), make([][]byte, ranks), make([][]byte, ranks), make([][]byte, ranks)}
}

// sources are the vectors that are to be folded next; the caller sets them all.
func sources[T dtype.Number](v *views) [][]T { return typed[T](v.from) }

// targets are those into which they are folded.
func targets[T dtype.Number](v *views) [][]T { return typed[T](v.to) }

func typed[T dtype.Number](v [][]byte) [][]T {
	return unsafe.Slice((*[]T)(unsafe.Pointer(unsafe.SliceData(v))), len(v))
}

// inPage is how far after the beginning of a page a vector begins that is not nowhere.
func (r Ref) inPage() int { return int((r - 1) % pageSize) }

// Edges returns how many of the bytes of a vector at r lie in pages of which it has not all:
// at its beginning and at its end, less than a page each. Arena.Abandon leaves these.
func (r Ref) Edges(bytes int) (head, tail int) {
	begin := r.inPage()
	head = min((pageSize-begin)%pageSize, bytes)
	return head, min((begin+bytes)%pageSize, bytes-head)
}

// PostVectors is Post for an AllReduce of vectors of which refs says whether they lie in an
// arena. Where they do and the call fails, other ranks may still write to dst.
func (l *Lane) PostVectors(h *Header, src []byte, refs Refs) {
	var head, tail int
	if refs.Dst != 0 && refs.Src != 0 {
		head, tail = refs.Dst.Edges(len(src))
	}
	l.Post(h, refs, src[:head], src[len(src)-tail:])
}

// mapped looks up the vectors of a call that all ranks have posted, of so many bytes; it
// reports whether all are in an arena, with dst at the same place of a page.
func (l *Lane) mapped(bytes int) bool {
	for r := range l.size {
		refs := l.post(r).refs
		var there [2]bool
		l.views.dst[r], there[0] = at(l.arenas[r], refs.Dst, bytes)
		l.views.src[r], there[1] = at(l.arenas[r], refs.Src, bytes)
		if !there[0] || !there[1] || refs.Dst.inPage() != l.post(0).refs.Dst.inPage() {
			return false
		}
	}
	return true
}

// direct folds vectors that all ranks have mapped.
func direct[T dtype.Number](l *Lane, length int, fold Folding[T]) error {
	l.directs++
	size := kernel.Size[T]()
	head, tail := l.post(l.rank).refs.Dst.Edges(length * size)
	edge(l, 0, head/size, 0, fold)
	edge(l, length-tail/size, length, head, fold)
	bytes := length * size
	for i := range l.size {
		owner := (l.rank + i) % l.size
		if i > 0 && !l.helps(owner, bytes) || !l.take(owner) {
			continue
		}
		first, end := l.share(head/size, length-tail/size, line/size, owner)
		pushChunk(l, bytes, first, end, fold)
		l.publish(&l.places[owner].chunk.folded, l.directs)
	}
	return l.finish()
}

// share returns the chunk of a rank of elements first to end, cut at multiples of align
// from first.
func (l *Lane) share(first, end, align, rank int) (from, to int) {
	chunk := (end - first + l.size - 1) / l.size
	chunk = (chunk + align - 1) / align * align
	return min(first+rank*chunk, end), min(first+(rank+1)*chunk, end)
}

// pushChunk folds elements first to end of vectors of so many bytes, past the caches or not, as
// takes less time.
func pushChunk[T dtype.Number](l *Lane, bytes, first, end int, fold Folding[T]) {
	switch {
	case l.streams(bytes):
		push(l, first, end, fold, l.size)
	case bytes < l.segment.paced || first == end:
		push(l, first, end, fold, 0)
	default:
		p := &l.paces[bits.Len(uint(bytes))]
		w, begun := p.next(), time.Now()
		push(l, first, end, fold, w.past(l.size))
		p.took(w, (end-first)*kernel.Size[T](), time.Since(begun))
	}
}

// push folds elements first to end into the vectors of all, this rank's own first; so many of
// the last ones past the caches.
func push[T dtype.Number](l *Lane, first, end int, fold Folding[T], past int) {
	step := directBlock / kernel.Size[T]()
	if fold.All == nil {
		step = min(pairBlock, len(l.blocks[l.rank])) / kernel.Size[T]() // as partial results go to its blocks
	}
	for ; first < end; first += step {
		pushBlock(l, first, min(first+step, end), fold, past)
		l.watch(-1)
	}
}

func pushBlock[T dtype.Number](l *Lane, first, end int, fold Folding[T], past int) {
	to, from := targets[T](&l.views), sources[T](&l.views)
	for r := range l.size {
		to[r] = of[T](l.views.dst[(l.rank+r)%l.size])[first:end]
		from[r] = of[T](l.views.src[r])[first:end]
	}
	fold.into(to, of[T](l.blocks[l.rank]), from, past) // dst may be the vector of a later rank
}

// edge folds elements first to end for this rank alone, out of what all have posted, where
// they begin after so many bytes.
func edge[T dtype.Number](l *Lane, first, end, skip int, fold Folding[T]) {
	if first == end {
		return
	}
	to, from := targets[T](&l.views)[:1], sources[T](&l.views)
	to[0] = of[T](l.views.dst[l.rank])[first:end]
	for r := range from {
		from[r] = of[T](l.post(r).inline[skip:])[:end-first]
	}
	fold.into(to, to[0], from, 0)
}

// finish waits until all chunks are folded. Where a rank has failed before, it waits until this
// segment is revoked, too, as it soon is. The call counts as one block.
func (l *Lane) finish() error {
	l.done++
	mine := l.mine()
	mine.filled.value.Store(l.done)
	mine.folded.value.Store(l.done)
	l.publish(&mine.taken.word, l.done)
	for r, p := range l.places {
		if err := l.await(&p.chunk.folded, l.directs, l.holder(r)); err != nil {
			return err
		}
	}
	for r, p := range l.places {
		if p.chunk.failed.Load() != 0 {
			return l.await(&p.chunk.folded, l.directs+1, r)
		}
	}
	return nil
}
