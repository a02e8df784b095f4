package shm

import (
	"unsafe"

	"github.com/elrun/elrun/internal/raw"
)

// directBlock is how many bytes a rank folds before it lets the others have them: they
// are in its cache then. A quarter of that takes up to a seventh longer, as ranks wait for
// each other more often.
const directBlock = 256 << 10

// A rank reads the vectors of all, and writes only its own. So a rank that was put out of
// the job in the middle of a call, and runs on later, can do no harm to what the others
// have in the same memory by then. They map its arena for reading only.

// views are the vectors of all ranks of a lane, of any type, as they are mapped here. Each
// call writes them anew: to make them would take longer than a short call.
type views struct {
	dst, src, from [][]byte
}

func newViews(ranks int) views {
	return views{make([][]byte, ranks), make([][]byte, ranks), make([][]byte, ranks)}
}

// sources are the vectors that are to be folded next; the caller sets them all.
func sources[T raw.Number](v *views) [][]T {
	return unsafe.Slice((*[]T)(unsafe.Pointer(unsafe.SliceData(v.from))), len(v.from))
}

// mapped looks up the vectors of a call that all ranks have posted, of so many bytes; it
// reports whether all are in an arena.
func (l *Lane) mapped(bytes int) bool {
	for r := range l.size {
		refs := l.post(r).refs
		var there [2]bool
		l.views.dst[r], there[0] = at(l.arenas[r], refs.Dst, bytes)
		l.views.src[r], there[1] = at(l.arenas[r], refs.Src, bytes)
		if !there[0] || !there[1] {
			return false
		}
	}
	return true
}

// directed is a call under way whose vectors all ranks have mapped.
type directed[T raw.Number] struct {
	*Lane
	length, chunk, step int // elements of the vector, of a rank's chunk, of a block
	stream              bool
}

// direct folds vectors that all ranks have mapped.
func direct[T raw.Number](l *Lane, length int, fold Folding[T]) error {
	step := min(directBlock, len(l.blocks[l.rank])) / raw.Size[T]() // as partial results go to its blocks
	d := directed[T]{Lane: l, length: length, chunk: (length + l.size - 1) / l.size, step: step}
	d.stream = l.streams(length * raw.Size[T]())
	count := (d.chunk + d.step - 1) / d.step
	for k := range count + 1 {
		if k < count {
			d.fold(k, fold)
			l.publish(&l.mine().folded.word, l.done+uint32(k)+1)
		}
		if k > 0 {
			if err := d.pull(k - 1); err != nil {
				return err
			}
		}
		l.watch(-1)
	}
	return l.finish(count)
}

// piece returns block k of the chunk of a rank.
func (d *directed[T]) piece(rank, k int) (first, end int) {
	first, end = min(rank*d.chunk+k*d.step, d.length), min((rank+1)*d.chunk, d.length)
	return min(first, end), min(first+d.step, end)
}

// fold folds block k of this rank's chunk.
func (d *directed[T]) fold(k int, fold Folding[T]) {
	first, end := d.piece(d.rank, k)
	from := sources[T](&d.views)
	for r := range from {
		from[r] = of[T](d.views.src[r])[first:end]
	}
	partial := of[T](d.blocks[d.rank])[:end-first] // as dst may be the vector of a later rank
	fold.into(of[T](d.views.dst[d.rank])[first:end], partial, from, false)
}

// pull copies block k of the others' chunks, the next rank's first.
func (d *directed[T]) pull(k int) error {
	dst := of[T](d.views.dst[d.rank])
	for i := 1; i < d.size; i++ {
		r := (d.rank + i) % d.size
		if err := d.await(&d.places[r].folded.word, d.done+uint32(k)+1, r); err != nil {
			return err
		}
		first, end := d.piece(r, k)
		move(dst[first:end], of[T](d.views.dst[r])[first:end], d.stream)
	}
	return nil
}

// finish waits until all ranks have done with the vectors of a call that counts as so
// many blocks.
func (l *Lane) finish(blocks int) error {
	l.done += uint32(blocks)
	mine := l.mine()
	mine.filled.value.Store(l.done)
	mine.folded.value.Store(l.done)
	l.publish(&mine.taken.word, l.done)
	for r, p := range l.places {
		if err := l.await(&p.taken.word, l.done, r); err != nil {
			return err
		}
	}
	return nil
}
