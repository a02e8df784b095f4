package shm

import (
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// Everyone as the root means that all ranks get the result.
const Everyone = -1

// Vectors are the arguments of a call at one rank. The whole vector is divided into a chunk for
// each rank.
type Vectors[T dtype.Number] struct {
	// Dst gets the result: the whole vector, or this rank's chunk in ReduceScatter. It stays
	// unchanged at ranks that get no result.
	Dst []T
	// Src is this rank's operand: a whole vector, or this rank's chunk in AllGather. It may begin
	// at the address of Dst.
	Src []T
	// Bounds holds the beginning of each chunk in the whole vector, and the vector's length.
	Bounds []int
	// Reduce is the reduction. AllGather does not use it.
	Reduce Reducer[T]
}

// AllReduce reduces the Src of all ranks, in the order of ranks, into Dst at every rank, or at root
// only. All ranks must have posted the call. It uses the direct engine if all vectors lie in
// arenas.
func AllReduce[T dtype.Number](l *Lane, v Vectors[T], root int) error {
	err := allReduce(l, v, root)
	if err != nil {
		l.own().chunk.failed.Store(1)
	}
	return err
}

// allReduce is AllReduce without the record of a failure.
func allReduce[T dtype.Number](l *Lane, v Vectors[T], root int) error {
	if err := l.AwaitAll(); err != nil {
		return err
	}
	if root == Everyone && l.mapped(len(v.Src)*kernel.Size[T]()) && wholeEdges(l, v) {
		return direct(l, len(v.Src), v.Reduce)
	}
	return stage(l, v, phases{reduce: true, distribute: true, root: root})
}

// ReduceScatter reduces this rank's chunk of the Src of all ranks into Dst, which has the length of
// the chunk.
func ReduceScatter[T dtype.Number](l *Lane, v Vectors[T]) error {
	if err := l.AwaitAll(); err != nil {
		return err
	}
	return stage(l, v, phases{reduce: true})
}

// AllGather copies the chunks of all ranks to Dst at every rank, or at root only. Chunks may have
// different lengths: in a broadcast all but one are empty.
func AllGather[T dtype.Number](l *Lane, v Vectors[T], root int) error {
	if err := l.AwaitAll(); err != nil {
		return err
	}
	return stage(l, v, phases{distribute: true, root: root})
}

// phases are the parts of a staged call.
type phases struct {
	reduce     bool // each rank reduces its chunk
	distribute bool // the chunks go to root
	root       int  // a rank or Everyone
}

// inPlace reports whether results overwrite the blocks of their operands.
func (p phases) inPlace() bool { return p.reduce && p.distribute && p.root == Everyone }

// staged is the state of a staged call at this rank.
type staged[T dtype.Number] struct {
	*Lane
	Vectors[T]
	phases
	depth       int // number of blocks of a rank
	block       int // bytes of a block
	stride      int // bytes of a chunk in a block
	width       int // elements of a chunk in a block, at most
	count       int // number of blocks of the call
	nonTemporal int // 1 if Dst exceeds the shared cache
}

// If all ranks get the result, a rank writes its reduced chunk back into the blocks of all ranks,
// and each rank copies results out of its own blocks. A cache line is then transferred twice: to
// the reducing rank, and back to the rank that copies in next. If the reducing rank kept the result
// in its own block, the other ranks would read it there, and its next write would have to
// invalidate their copies: the rank would have to wait for one more transfer. After the reduction
// no other rank reads the block of a rank, so two blocks are enough: one is filled while the other
// is reduced. If not all ranks get the result, a rank waits before it fills a block until the other
// ranks have copied their results out. Such a call uses four blocks of half the size.

// stage runs a call of the staged engine: vectors pass through the segment in blocks, each with a
// piece of every chunk. While other ranks still fill block k this rank fills block k+1.
func stage[T dtype.Number](l *Lane, v Vectors[T], p phases) error {
	s := &staged[T]{Lane: l, Vectors: v, phases: p, depth: maxBlocks}
	if p.inPlace() {
		s.depth = minBlocks
	}
	if l.exceedsCache(len(v.Dst) * kernel.Size[T]()) {
		s.nonTemporal = 1
	}
	s.block = l.segment.blockBytes / s.depth
	s.stride = s.block / l.size &^ (cacheLine - 1)
	// One cache line is left free for the offset of a piece (see pieceIn).
	s.width = (s.stride - cacheLine) / kernel.Size[T]()
	if p.reduce {
		s.width -= s.width % v.Reduce.group()
	}
	for i := range l.size {
		s.count = max(s.count, (v.Bounds[i+1]-v.Bounds[i]+s.width-1)/s.width)
	}
	if s.count == 0 {
		return nil
	}
	// Fill one block ahead: the other ranks can reduce it while this rank completes the previous
	// one.
	if err := s.fill(0); err != nil {
		return err
	}
	for k := range s.count {
		if k+1 < s.count {
			if err := s.fill(k + 1); err != nil {
				return err
			}
		}
		if err := s.complete(k); err != nil {
			return err
		}
	}
	l.doneBlocks += uint32(s.count)
	return nil
}

// receives reports whether this rank gets the result.
func (s *staged[T]) receives() bool { return s.root == Everyone || s.root == s.rank }

// piece returns the piece of a rank's chunk that is in block k, as bounds in the whole vector.
func (s *staged[T]) piece(k, rank int) (first, end int) {
	first = s.Bounds[rank] + k*s.width
	end = s.Bounds[rank+1]
	return min(first, end), min(first+s.width, end)
}

// pieceIn returns the memory of a chunk's piece in block k of the rank owner. This memory has the
// same offset in its cache line as the piece has in a vector that begins at a cache line. No rank
// is still in the previous call, so the blocks of each call are counted from 0.
func (s *staged[T]) pieceIn(k, owner, chunk int) []T {
	bytes := kernel.Size[T]()
	first, end := s.piece(k, chunk)
	b := s.blocks[owner][k%s.depth*s.block+chunk*s.stride+first*bytes%cacheLine:]
	return kernel.Elements[T](b[:(end-first)*bytes])
}

// fill copies this rank's operands for the chunks of the other ranks into its block k, once no rank
// needs the earlier content of the block any more.
func (s *staged[T]) fill(k int) error {
	if !s.inPlace() {
		for r, p := range s.areas {
			if err := s.await(&p.taken.counter, s.doneBlocks+uint32(k+1-s.depth), r); err != nil {
				return err
			}
		}
	}
	if s.reduce {
		for r := range s.size {
			if r != s.rank { // the own chunk is reduced from Src
				first, end := s.piece(k, r)
				copy(s.pieceIn(k, s.rank, r), s.Src[first:end])
			}
		}
	} else {
		first, end := s.piece(k, s.rank)
		copy(s.pieceIn(k, s.rank, s.rank), s.Src[first-s.Bounds[s.rank]:][:end-first])
	}
	s.publish(&s.own().filled.counter, s.doneBlocks+uint32(k)+1)
	return nil
}

// complete reduces this rank's piece of block k and then collects the other pieces.
func (s *staged[T]) complete(k int) error {
	if s.reduce {
		if err := s.reducePiece(k); err != nil {
			return err
		}
	}
	if s.distribute && s.receives() {
		if err := s.collect(k); err != nil {
			return err
		}
	}
	s.publish(&s.own().taken.counter, s.doneBlocks+uint32(k)+1)
	s.watch(-1)
	return nil
}

// reducePiece reduces this rank's piece of block k into its destinations.
func (s *staged[T]) reducePiece(k int) error {
	for r, p := range s.areas {
		if err := s.await(&p.filled.counter, s.doneBlocks+uint32(k)+1, r); err != nil {
			return err
		}
	}
	from := sources[T](&s.views)
	for r := range from {
		from[r] = s.pieceIn(k, r, s.rank)
	}
	first, end := s.piece(k, s.rank)
	from[s.rank] = s.Src[first:end]
	to, nonTemporal := s.destinations(k)
	s.Reduce.reduceInto(to, s.pieceIn(k, s.rank, s.rank), from, nonTemporal)
	s.publish(&s.own().folded.counter, s.doneBlocks+uint32(k)+1)
	return nil
}

// destinations returns the vectors that get this rank's piece of block k, and how many of them, at
// the end, are written by non-temporal stores: 1 if the last one is Dst and Dst exceeds the shared
// cache.
func (s *staged[T]) destinations(k int) (to [][]T, nonTemporal int) {
	first, end := s.piece(k, s.rank)
	to = targets[T](&s.views)[:1]
	switch {
	case !s.distribute:
		to[0] = s.Dst[first-s.Bounds[s.rank]:][:end-first]
	case s.inPlace():
		to = to[:s.size]
		for i := range s.size - 1 {
			to[i] = s.pieceIn(k, (s.rank+1+i)%s.size, s.rank)
		}
		to[s.size-1] = s.Dst[first:end]
	case s.receives():
		to[0] = s.Dst[first:end]
	default:
		to[0] = s.pieceIn(k, s.rank, s.rank) // the root copies the piece from there
		return to, 0
	}
	return to, s.nonTemporal
}

// collect copies the pieces of block k that are not in Dst yet to Dst.
func (s *staged[T]) collect(k int) error {
	for i := range s.size {
		if s.reduce && i == 0 {
			continue // reducePiece has written the own piece
		}
		r := (s.rank + i) % s.size
		ready := &s.areas[r].filled.counter
		if s.reduce {
			ready = &s.areas[r].folded.counter
		}
		if err := s.await(ready, s.doneBlocks+uint32(k)+1, r); err != nil {
			return err
		}
		first, end := s.piece(k, r)
		if s.inPlace() {
			copyVector(s.Dst[first:end], s.pieceIn(k, s.rank, r), kernel.Copying{NonTemporal: s.nonTemporal > 0, Prefetchw: true, Next: s.prefetched(k, r, i == 1)})
		} else {
			copyVector(s.Dst[first:end], s.pieceIn(k, r, r), kernel.Copying{NonTemporal: s.nonTemporal > 0})
		}
	}
	return nil
}

// prefetched returns the parts of Src that this rank reads soon after it has collected the piece of
// the given rank from block k. next[0] is the operand for the chunk of the given rank, which this
// rank copies into its block. next[1], if own is set, is the operand for its own chunk, which this
// rank reduces.
func (s *staged[T]) prefetched(k, rank int, own bool) (next [2][]byte) {
	first, end := s.piece(k+2, rank)
	next[0] = kernel.Bytes(s.Src[first:end])
	if own {
		first, end = s.piece(k+1, s.rank)
		next[1] = kernel.Bytes(s.Src[first:end])
	}
	return next
}
