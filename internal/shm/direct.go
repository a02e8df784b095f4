package shm

import "github.com/elrun/elrun/internal/raw"

// directBlock is how many bytes a rank folds before it lets the others have them: they
// are in its cache then.
const directBlock = 64 << 10

// A rank reads the vectors of all, and writes only its own. So a rank that was put out of
// the job in the middle of a call, and runs on later, can do no harm to what the others
// have in the same memory by then. They map its arena for reading only.

// views are the vectors of all ranks as they are mapped here.
type views[T raw.Number] struct {
	dst, src [MaxRanks][]T
	inPlace  bool // at some rank
}

// mapped returns the vectors of a call that all ranks have posted; ok is false if some
// are not in an arena.
func mapped[T raw.Number](l *Lane, count int) (v *views[T], ok bool) {
	v = new(views[T])
	for r := range l.size {
		refs := l.post(r).refs
		dst, ok := at(l.arenas[r], refs.Dst, count*raw.Size[T]())
		if !ok {
			return nil, false
		}
		src, ok := at(l.arenas[r], refs.Src, count*raw.Size[T]())
		if !ok {
			return nil, false
		}
		v.dst[r], v.src[r] = of[T](dst), of[T](src)
		v.inPlace = v.inPlace || refs.Dst == refs.Src
	}
	return v, true
}

// direct folds vectors that all ranks have mapped.
func direct[T raw.Number](l *Lane, v *views[T], fold Folding[T]) error {
	d := directed[T]{Lane: l, views: v, length: len(v.src[l.rank]), step: directBlock / raw.Size[T]()}
	d.stream = d.length*raw.Size[T]() >= streamFrom
	if l.size == 2 && !v.inPlace {
		for first := 0; first < d.length; first += d.step {
			end := min(first+d.step, d.length)
			fold.into(v.dst[l.rank][first:end], nil, d.sources(first, end), d.stream)
		}
		return l.finish(1)
	}
	d.chunk = (d.length + l.size - 1) / l.size
	count := (d.chunk + d.step - 1) / d.step
	for k := range count + 1 {
		if k < count {
			first, end := d.piece(l.rank, k)
			partial := of[T](l.blocks[l.rank])[:end-first] // as dst may be the vector of a later rank
			fold.into(v.dst[l.rank][first:end], partial, d.sources(first, end), false)
			l.publish(&l.mine().folded, l.done+uint32(k)+1)
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

// directed is such a call under way.
type directed[T raw.Number] struct {
	*Lane
	*views[T]
	length, chunk, step int // elements of the vector, of a rank's chunk, of a block
	stream              bool
	from                [MaxRanks][]T
}

// sources are a part of the vectors of all ranks.
func (d *directed[T]) sources(first, end int) [][]T {
	for r := range d.size {
		d.from[r] = d.src[r][first:end]
	}
	return d.from[:d.size]
}

// piece returns block k of the chunk of a rank.
func (d *directed[T]) piece(rank, k int) (first, end int) {
	first, end = min(rank*d.chunk+k*d.step, d.length), min((rank+1)*d.chunk, d.length)
	return min(first, end), min(first+d.step, end)
}

// pull copies block k of the others' chunks, the next rank's first.
func (d *directed[T]) pull(k int) error {
	for i := 1; i < d.size; i++ {
		r := (d.rank + i) % d.size
		if err := d.await(&d.places[r].folded, d.done+uint32(k)+1, r); err != nil {
			return err
		}
		first, end := d.piece(r, k)
		move(d.dst[d.rank][first:end], d.dst[r][first:end], d.stream)
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
	l.publish(&mine.taken, l.done)
	for r, p := range l.places {
		if err := l.await(&p.taken, l.done, r); err != nil {
			return err
		}
	}
	return nil
}
