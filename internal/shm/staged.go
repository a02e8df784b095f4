package shm

import "github.com/elrun/elrun/internal/raw"

// Everyone as a root means that all ranks want the result.
const Everyone = -1

// Vectors are what a staged call works on: a vector of which each rank has a chunk.
type Vectors[T raw.Number] struct {
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
func AllReduce[T raw.Number](l *Lane, v Vectors[T], root int) error {
	if err := l.Meet(); err != nil {
		return err
	}
	if root == Everyone && l.mapped(len(v.Src)*raw.Size[T]()) {
		return direct(l, len(v.Src), v.Fold)
	}
	return stage(l, v, pass{fold: true, spread: true, root: root})
}

// ReduceScatter folds this rank's chunk of all Src into Dst, which is as long as the
// chunk.
func ReduceScatter[T raw.Number](l *Lane, v Vectors[T]) error {
	if err := l.Meet(); err != nil {
		return err
	}
	return stage(l, v, pass{fold: true})
}

// AllGather copies the chunks of all ranks, Src, to Dst at every rank, or at root only.
// Chunks may have any lengths: of a broadcast all but one are empty.
func AllGather[T raw.Number](l *Lane, v Vectors[T], root int) error {
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

// staged is a call under way at this rank.
type staged[T raw.Number] struct {
	*Lane
	Vectors[T]
	pass
	width  int  // elements of a chunk in a block
	count  int  // blocks
	stream bool // Dst is too long for the cache
	twice  bool // what this rank folds goes to Dst at once, and not only to the block
}

// stage takes the vectors through the segment by blocks, each of which holds a piece of
// every chunk. While others still fill block k this rank fills block k+1.
func stage[T raw.Number](l *Lane, v Vectors[T], p pass) error {
	s := &staged[T]{Lane: l, Vectors: v, pass: p, stream: l.streams(len(v.Dst) * raw.Size[T]())}
	s.twice = l.size > 1 && p.fold && p.spread && s.takes() && !s.stream
	s.width = l.segment.block / l.size &^ (line - 1) / raw.Size[T]()
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

// slot returns where the piece of a chunk, n elements, is in block k of a rank.
func (s *staged[T]) slot(k, owner, chunk, n int) []T {
	bytes := raw.Size[T]()
	block := s.blocks[owner][(int(s.done)+k)%depth*s.segment.block:]
	return of[T](block[chunk*s.width*bytes : (chunk*s.width+n)*bytes])
}

// fill copies what others want of this rank into its block k, once all have done with
// what was there.
func (s *staged[T]) fill(k int) error {
	for r, p := range s.places {
		if err := s.await(&p.taken.word, s.done+uint32(k)+1-depth, r); err != nil {
			return err
		}
	}
	if s.fold {
		for r := range s.size {
			if r != s.rank { // its own it folds from Src
				first, end := s.piece(k, r)
				copy(s.slot(k, s.rank, r, end-first), s.Src[first:end])
			}
		}
	} else {
		first, end := s.piece(k, s.rank)
		copy(s.slot(k, s.rank, s.rank, end-first), s.Src[first-s.Bounds[s.rank]:])
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

// foldPiece leaves its result in the block, for the others, or in Dst, if it is only for
// this rank.
func (s *staged[T]) foldPiece(k int) error {
	for r, p := range s.places {
		if err := s.await(&p.filled.word, s.done+uint32(k)+1, r); err != nil {
			return err
		}
	}
	first, end := s.piece(k, s.rank)
	n := end - first
	out := s.slot(k, s.rank, s.rank, n)
	to, from := targets[T](&s.views)[:1], sources[T](&s.views)
	to[0] = out
	if !s.spread {
		to[0] = s.Dst[first-s.Bounds[s.rank]:][:n]
	}
	if s.twice {
		to = to[:2]
		to[1] = s.Dst[first:end]
	}
	for r := range from {
		from[r] = s.slot(k, r, s.rank, n)
	}
	from[s.rank] = s.Src[first:end]
	s.Fold.into(to, out, from, false)
	s.publish(&s.mine().folded.word, s.done+uint32(k)+1)
	return nil
}

// take copies the pieces of all ranks that are not there yet to Dst.
func (s *staged[T]) take(k int) error {
	for i := range s.size {
		r := (s.rank + i) % s.size // its own is ready
		if s.twice && i == 0 {
			continue
		}
		ready := &s.places[r].filled.word
		if s.fold {
			ready = &s.places[r].folded.word
		}
		if err := s.await(ready, s.done+uint32(k)+1, r); err != nil {
			return err
		}
		first, end := s.piece(k, r)
		move(s.Dst[first:end], s.slot(k, r, r, end-first), s.stream)
	}
	return nil
}
