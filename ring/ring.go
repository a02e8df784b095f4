package ring

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/elrun/elrun/internal/kernel"
)

// Link carries messages from the left neighbour to this rank and from this rank to the right
// neighbour: the ranks before and after it in the order of the ring. These are rank-1 and rank+1
// (modulo the number of ranks) unless Ring.Order is set.
//
// Messages arrive whole, in the order of the Sends, and Recv is called with the length that was
// sent. One Send and one Recv may be pending at a time, from two goroutines. Both return, with an
// error or nil, soon after ctx is done or the neighbour is lost.
type Link interface {
	// Send sends buf to the right neighbour. It may block until the neighbour calls Recv. The
	// caller may reuse buf when Send has returned.
	Send(ctx context.Context, buf []byte) error
	// Recv fills buf with the next message of the left neighbour. After Recv has returned, buf is
	// no longer written to.
	Recv(ctx context.Context, buf []byte) error
}

// Ring is the place of one rank in a ring, with its link and settings. Size and Segment must be the
// same at all ranks. A Ring serves one call at a time.
type Ring struct {
	Link Link // not used if Size is 1
	Rank int  // 0 <= Rank < Size
	Size int  // number of ranks
	// Order lists the ranks in the order of the ring, rotated in any way; nil stands for 0, 1, 2
	// and so on. Up to rotation it must be the same at all ranks.
	Order []int
	// Segment is the greatest length of a message, in bytes. A message has at least one element,
	// however small Segment is.
	Segment int
	// Memory, if set, provides working memory of at least the given number of 64-bit words. A call
	// of the ring uses this memory until it returns. A call asks once for the memory of at most one
	// segment, and in ReduceScatter a second time, for twice the longest chunk. The results of the
	// two calls of Memory must not overlap each other, dst or src; otherwise the call fails with
	// ErrArgument. If Memory is nil, the call allocates.
	Memory func(words int) []uint64
}

var (
	// ErrNotCommutative is the error for a reduction that is not commutative: the ring reduces each
	// chunk in another order of the ranks.
	ErrNotCommutative = errors.New("reduction is not commutative")
	// ErrArgument is the error for a length, bound, rank or segment size that does not fit the
	// call, and for working memory that overlaps. Nothing was sent.
	ErrArgument = errors.New("bad argument")
)

// AllReduce sets dst at every rank to the reduction of src over all ranks. dst and src have the
// same length at all ranks. dst may be src; they must not overlap otherwise.
//
// A rank sends and receives 2(n-1) chunks. On errors see the package documentation.
func AllReduce[T Number](ctx context.Context, r Ring, dst, src []T, op Reduction[T]) error {
	if err := r.checkReduction(op.Name, op.Commutative); err != nil {
		return err
	}
	if len(dst) != len(src) {
		return fmt.Errorf("ring: %w: len(dst) is %d and len(src) is %d, want equal lengths", ErrArgument, len(dst), len(src))
	}
	if err := checkWidth(op.Width, len(src)); err != nil {
		return err
	}
	if r.Size == 1 {
		copy(dst, src)
	} else {
		p := pipeline[T]{
			schedule: allReduce(r.turn(), ChunksOf(len(src), r.Size, op.Width), segmentOf[T](r, op.Width)),
			link:     r.Link, memory: r.Memory, dst: dst, src: src, fold: op.Fold,
		}
		if err := p.run(ctx); err != nil {
			return err
		}
	}
	finish(op, dst, r.Size)
	return nil
}

// ReduceScatter reduces src over all ranks and stores chunk i of the result in dst of rank i.
//
// Chunk i is [bounds[i], bounds[i+1]). bounds has Size+1 elements that do not decrease, the first 0
// and the last len(src), and is the same at all ranks. dst has the length of the rank's own chunk.
// dst may be the part of src at the rank's own chunk; dst and src must not overlap otherwise. src
// stays intact.
//
// With more than two ranks the call needs memory for two partial sums of the longest chunk.
func ReduceScatter[T Number](ctx context.Context, r Ring, dst, src []T, bounds []int, op Reduction[T]) error {
	if err := r.checkReduction(op.Name, op.Commutative); err != nil {
		return err
	}
	if err := r.checkBounds(bounds, len(src)); err != nil {
		return err
	}
	if err := checkWidth(op.Width, bounds...); err != nil {
		return err
	}
	if own := bounds[r.Rank+1] - bounds[r.Rank]; len(dst) != own {
		return fmt.Errorf("ring: %w: len(dst) is %d, but chunk %d has %d elements", ErrArgument, len(dst), r.Rank, own)
	}
	if r.Size == 1 {
		copy(dst, src)
	} else {
		p := pipeline[T]{
			schedule: reduceScatter(r.turn(), bounds, segmentOf[T](r, op.Width)),
			link:     r.Link, memory: r.Memory, dst: dst, src: src, fold: op.Fold, scattered: true,
		}
		if err := p.run(ctx); err != nil {
			return err
		}
	}
	finish(op, dst, r.Size)
	return nil
}

// AllGather fills dst at every rank with the chunks of all ranks. Before the call rank i has stored
// its own chunk in dst[bounds[i]:bounds[i+1]]. bounds has the same form as for ReduceScatter, with
// len(dst) as its last element; chunks may be empty.
func AllGather[T Number](ctx context.Context, r Ring, dst []T, bounds []int) error {
	if err := r.check(); err != nil {
		return err
	}
	if err := r.checkBounds(bounds, len(dst)); err != nil {
		return err
	}
	if r.Size == 1 {
		return nil
	}
	p := pipeline[T]{
		schedule: allGather(r.turn(), bounds, segmentOf[T](r, 1)),
		link:     r.Link, memory: r.Memory, dst: dst, src: dst,
	}
	return p.run(ctx)
}

// Broadcast copies dst of rank root to dst of all ranks. All have the same length. The segments
// travel along the ring, from root to its left neighbour.
func Broadcast[T Number](ctx context.Context, r Ring, dst []T, root int) error {
	if err := r.check(); err != nil {
		return err
	}
	if root < 0 || root >= r.Size {
		return fmt.Errorf("ring: %w: root %d is out of range for %d ranks", ErrArgument, root, r.Size)
	}
	if r.Size == 1 {
		return nil
	}
	distance := modulo(r.turn().place-r.placeOf(root), r.Size)
	p := pipeline[T]{
		schedule: broadcast(distance, r.Size, len(dst), segmentOf[T](r, 1)),
		link:     r.Link, memory: r.Memory, dst: dst, src: dst,
	}
	return p.run(ctx)
}

// Chunks cuts n elements into size chunks whose lengths differ by at most one, the longer chunks
// first. It returns size+1 bounds: chunk i is [bounds[i], bounds[i+1]).
func Chunks(n, size int) []int {
	bounds := make([]int, size+1)
	for i := range size {
		bounds[i+1] = bounds[i] + n/size
		if i < n%size {
			bounds[i+1]++
		}
	}
	return bounds
}

// ChunksOf is Chunks for a reduction of the given width: it cuts groups of width elements, so that
// the chunks have whole groups. n is a multiple of width.
func ChunksOf(n, size, width int) []int {
	width = max(1, width)
	bounds := Chunks(n/width, size)
	for i := range bounds {
		bounds[i] *= width
	}
	return bounds
}

// check returns an error that wraps ErrArgument if r is not valid.
func (r Ring) check() error {
	switch {
	case r.Size < 1 || r.Rank < 0 || r.Rank >= r.Size:
		return fmt.Errorf("ring: %w: rank %d is none of %d ranks", ErrArgument, r.Rank, r.Size)
	case r.Segment < 1:
		return fmt.Errorf("ring: %w: segments of %d bytes, want 1 or more", ErrArgument, r.Segment)
	case r.Order != nil && !isOrder(r.Order, r.Size):
		return fmt.Errorf("ring: %w: the order %v does not have each of %d ranks once", ErrArgument, r.Order, r.Size)
	case r.Link == nil && r.Size > 1:
		return fmt.Errorf("ring: %w: no link to the other %d ranks", ErrArgument, r.Size-1)
	}
	return nil
}

// isOrder reports whether order has each of n ranks exactly once.
func isOrder(order []int, n int) bool {
	if len(order) != n {
		return false
	}
	seen := make([]bool, n)
	for _, rank := range order {
		if rank < 0 || rank >= n || seen[rank] {
			return false
		}
		seen[rank] = true
	}
	return true
}

// placeOf returns the place of a rank in the order of the ring.
func (r Ring) placeOf(rank int) int {
	if r.Order == nil {
		return rank
	}
	return slices.Index(r.Order, rank)
}

// turn returns the place of this rank together with the order of the ring.
func (r Ring) turn() turn { return turn{place: r.placeOf(r.Rank), order: r.Order} }

// checkReduction is like check, and also refuses a reduction that is not commutative. It does so
// even for a ring of one rank, so that a wrong program fails with any number of ranks.
func (r Ring) checkReduction(op string, commutative bool) error {
	if !commutative {
		return fmt.Errorf("ring: %q: %w", op, ErrNotCommutative)
	}
	return r.check()
}

// checkWidth returns an error that wraps ErrArgument unless all bounds are between groups of width
// elements.
func checkWidth(width int, bounds ...int) error {
	for _, b := range bounds {
		if width > 1 && b%width != 0 {
			return fmt.Errorf("ring: %w: a chunk ends at element %d, want a multiple of the width %d", ErrArgument, b, width)
		}
	}
	return nil
}

// checkBounds returns an error that wraps ErrArgument unless bounds cuts n elements into Size
// chunks.
func (r Ring) checkBounds(bounds []int, n int) error {
	if len(bounds) != r.Size+1 {
		return fmt.Errorf("ring: %w: %d bounds for %d ranks, want one more than ranks", ErrArgument, len(bounds), r.Size)
	}
	if bounds[0] != 0 || bounds[r.Size] != n {
		return fmt.Errorf("ring: %w: bounds from %d to %d do not cover a vector of %d elements",
			ErrArgument, bounds[0], bounds[r.Size], n)
	}
	for i := range r.Size {
		if bounds[i] > bounds[i+1] {
			return fmt.Errorf("ring: %w: chunk %d ends before it begins: bounds %d and %d", ErrArgument, i, bounds[i], bounds[i+1])
		}
	}
	return nil
}

// segmentOf returns the number of elements of T in a segment: a multiple of width, at least one
// group.
func segmentOf[T Number](r Ring, width int) int {
	width = max(1, width)
	return max(1, r.Segment/kernel.Size[T]()/width) * width
}

// finish applies op.Finish, if any, to the reduced vector of n ranks.
func finish[T Number](op Reduction[T], v []T, n int) {
	if op.Finish != nil {
		op.Finish(v, n)
	}
}
