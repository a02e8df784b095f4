package shm

import (
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// Everyone as a root means that all ranks want the result.
const Everyone = -1

// Vectors are what a staged call works on: a vector of which each rank has a chunk.
type Vectors[T dtype.Number] struct {
	// Dst takes the whole vector, or where only this rank's chunk is wanted, that. It is
	// not touched at ranks that are not to have the result.
	Dst []T
	// Src is this rank's whole vector, or where nothing is folded, its chunk. Dst and Src
	// may begin at the same address.
	Src []T
	// Bounds are where the chunks begin in the whole vector, and its end.
	Bounds []int
	// Fold is not used where the chunks are only gathered.
	Fold Folding[T]
}

// AllReduce folds the ranks' Src in the order of ranks into Dst at every rank, or at root
// only.
func AllReduce[T dtype.Number](l *Lane, v Vectors[T], root int) error {
	err := allReduce(l, v, root)
	if err != nil {
		l.mine().chunk.failed.Store(1)
	}
	return err
}

func allReduce[T dtype.Number](l *Lane, v Vectors[T], root int) error {
	if err := l.Meet(); err != nil {
		return err
	}
	if root == Everyone && l.mapped(len(v.Src)*kernel.Size[T]()) {
		return direct(l, len(v.Src), v.Fold)
	}
	return stage(l, v, pass{fold: true, spread: true, root: root})
}

// ReduceScatter folds this rank's chunk of all Src into Dst, which is as long as the
// chunk.
func ReduceScatter[T dtype.Number](l *Lane, v Vectors[T]) error {
	if err := l.Meet(); err != nil {
		return err
	}
	return stage(l, v, pass{fold: true})
}

// AllGather copies the chunks of all ranks, Src, to Dst at every rank, or at root only.
// Chunks may have any lengths: of a broadcast all but one are empty.
func AllGather[T dtype.Number](l *Lane, v Vectors[T], root int) error {
	if err := l.Meet(); err != nil {
		return err
	}
	return stage(l, v, pass{spread: true, root: root})
}

// pass says which parts of the work a call has.
type pass struct {
	fold   bool // each rank folds its chunk
	spread bool // chunks are handed out
	root   int  // to whom
}

// back reports whether what is folded goes back into the blocks that it came from.
func (p pass) back() bool { return p.fold && p.spread && p.root == Everyone }

// staged is a call under way at this rank.
type staged[T dtype.Number] struct {
	*Lane
	Vectors[T]
	pass
	depth  int // blocks that a rank has
	block  int // bytes of one
	stride int // of these, those of a chunk
	width  int // elements of a chunk in a block
	count  int // blocks that it takes
	past   int // 1 if Dst is too long for the cache
}

// Where all are to have the result, what a rank has folded goes back into the blocks that it
// came from: each copies it out of its own ones. So a cache line is claimed by the rank that
// folds, and claimed back by the one that copies in next, two journeys for one there and one
// back. Were it read by the one and then written by the other, the other would wait for a
// journey more, in which the line is taken away from who had read it. Nobody else wants
// the block by then, and two are enough: one is filled while the one before is on its way.
// Otherwise ranks wait for others to have taken what is theirs, and have four, of half the
// size.

// stage takes the vectors through the segment by blocks, each of which holds a piece of
// every chunk. While others still fill block k this rank fills block k+1.
func stage[T dtype.Number](l *Lane, v Vectors[T], p pass) error {
	s := &staged[T]{Lane: l, Vectors: v, pass: p, depth: most}
	if p.back() {
		s.depth = least
	}
	if l.streams(len(v.Dst) * kernel.Size[T]()) {
		s.past = 1
	}
	s.block = l.segment.room / s.depth
	s.stride = s.block / l.size &^ (line - 1)
	s.width = (s.stride - line) / kernel.Size[T]()
	for i := range l.size {
		s.count = max(s.count, (v.Bounds[i+1]-v.Bounds[i]+s.width-1)/s.width)
	}
	if s.count == 0 {
		return nil
	}
	if err := s.fill(0); err != nil {
		return err
	}
	for k := range s.count {
		if k+1 < s.count {
			if err := s.fill(k + 1); err != nil {
				return err
			}
		}
		if err := s.settle(k); err != nil {
			return err
		}
	}
	l.done += uint32(s.count)
	return nil
}

// takes reports whether this rank is to have what is handed out.
func (s *staged[T]) takes() bool { return s.root == Everyone || s.root == s.rank }

// piece returns the part of rank's chunk that block k holds, in the whole vector.
func (s *staged[T]) piece(k, rank int) (first, end int) {
	first = s.Bounds[rank] + k*s.width
	end = s.Bounds[rank+1]
	return min(first, end), min(first+s.width, end)
}

// slot returns where the piece of a chunk is in block k of a rank: as many bytes after the
// beginning of a line as in a vector that begins with one. No rank is still at the call
// before, so that the blocks of each call are counted from the first.
func (s *staged[T]) slot(k, owner, chunk int) []T {
	bytes := kernel.Size[T]()
	first, end := s.piece(k, chunk)
	b := s.blocks[owner][k%s.depth*s.block+chunk*s.stride+first*bytes%line:]
	return of[T](b[:(end-first)*bytes])
}

// fill copies what others want of this rank into its block k, once all have done with
// what was there.
func (s *staged[T]) fill(k int) error {
	if !s.back() {
		for r, p := range s.places {
			if err := s.await(&p.taken.word, s.done+uint32(k+1-s.depth), r); err != nil {
				return err
			}
		}
	}
	if s.fold {
		for r := range s.size {
			if r != s.rank { // its own it folds from Src
				first, end := s.piece(k, r)
				copy(s.slot(k, s.rank, r), s.Src[first:end])
			}
		}
	} else {
		first, end := s.piece(k, s.rank)
		copy(s.slot(k, s.rank, s.rank), s.Src[first-s.Bounds[s.rank]:][:end-first])
	}
	s.publish(&s.mine().filled.word, s.done+uint32(k)+1)
	return nil
}

// settle folds this rank's piece of block k and takes those of the others.
func (s *staged[T]) settle(k int) error {
	if s.fold {
		if err := s.foldPiece(k); err != nil {
			return err
		}
	}
	if s.spread && s.takes() {
		if err := s.take(k); err != nil {
			return err
		}
	}
	s.publish(&s.mine().taken.word, s.done+uint32(k)+1)
	s.watch(-1)
	return nil
}

// foldPiece folds this rank's piece of block k to where it is wanted.
func (s *staged[T]) foldPiece(k int) error {
	for r, p := range s.places {
		if err := s.await(&p.filled.word, s.done+uint32(k)+1, r); err != nil {
			return err
		}
	}
	from := sources[T](&s.views)
	for r := range from {
		from[r] = s.slot(k, r, s.rank)
	}
	first, end := s.piece(k, s.rank)
	from[s.rank] = s.Src[first:end]
	to, past := s.wanted(k)
	s.Fold.into(to, s.slot(k, s.rank, s.rank), from, past)
	s.publish(&s.mine().folded.word, s.done+uint32(k)+1)
	return nil
}

// wanted returns where this rank's piece of block k is wanted, and how many of these places,
// the last, are too long for the cache as a whole: Dst, if this rank is to have the piece.
func (s *staged[T]) wanted(k int) (to [][]T, past int) {
	first, end := s.piece(k, s.rank)
	to = targets[T](&s.views)[:1]
	switch {
	case !s.spread:
		to[0] = s.Dst[first-s.Bounds[s.rank]:][:end-first]
	case s.back():
		to = to[:s.size]
		for i := range s.size - 1 {
			to[i] = s.slot(k, (s.rank+1+i)%s.size, s.rank)
		}
		to[s.size-1] = s.Dst[first:end]
	case s.takes():
		to[0] = s.Dst[first:end]
	default:
		to[0] = s.slot(k, s.rank, s.rank) // for the root to take
		return to, 0
	}
	return to, s.past
}

// take copies the pieces of all ranks that are not there yet to Dst.
func (s *staged[T]) take(k int) error {
	for i := range s.size {
		if s.fold && i == 0 {
			continue // its own is there
		}
		r := (s.rank + i) % s.size
		ready := &s.places[r].filled.word
		if s.fold {
			ready = &s.places[r].folded.word
		}
		if err := s.await(ready, s.done+uint32(k)+1, r); err != nil {
			return err
		}
		first, end := s.piece(k, r)
		if s.back() {
			move(s.Dst[first:end], s.slot(k, s.rank, r), kernel.Copying{Past: s.past > 0, Claim: true, Next: s.soon(k, r, i == 1)})
		} else {
			move(s.Dst[first:end], s.slot(k, r, r), kernel.Copying{Past: s.past > 0})
		}
	}
	return nil
}

// soon returns what this rank reads of Src after block k: where it has taken a piece of a
// rank, the one that it copies in next for that, and with the first its own that it folds next.
func (s *staged[T]) soon(k, rank int, own bool) (next [2][]byte) {
	first, end := s.piece(k+2, rank)
	next[0] = kernel.Bytes(s.Src[first:end])
	if own {
		first, end = s.piece(k+1, s.rank)
		next[1] = kernel.Bytes(s.Src[first:end])
	}
	return next
}
