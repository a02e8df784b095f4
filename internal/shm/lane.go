package shm

import (
	"fmt"
	"math/bits"
	"slices"
	"time"
	"unsafe"

	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// Lane carries the calls of one communicator, one after the other. It has a single owner
// at each rank. After an error the lane is of no more use.
type Lane struct {
	segment *Segment
	size    int
	rank    int  // in the lane
	crowded bool // at least two ranks have to share each core
	places  []*place
	blocks  [][]byte
	arenas  [][]byte
	views   views
	paces   [bits.UintSize + 1]pace // of direct calls, by the length of the number of their bytes
	ranks   []int                   // of the segment
	looked  time.Time               // when this rank looked last on which cores the others are
	calls   uint32                  // posted
	directs uint32                  // of these, direct ones
	done    uint32                  // blocks of all calls before
	// Watch, if set, is told for which rank of the lane this one is about to sleep, and,
	// with -1, now and then that the call goes on.
	Watch func(rank int)
}

// Lane returns lane i, less than Lanes, among some ranks of the segment, this one among
// them. All of these must take the same lane, with the same ranks, and no rank may take a
// lane twice.
func (s *Segment) Lane(i int, ranks []int) *Lane {
	l := &Lane{segment: s, size: len(ranks), ranks: ranks, rank: slices.Index(ranks, s.rank), views: newViews(len(ranks)),
		crowded: len(ranks) >= 2*s.processors}
	if l.rank < 0 || i < 0 || i >= Lanes {
		panic(fmt.Sprintf("shm: lane %d of ranks %v at rank %d", i, ranks, s.rank))
	}
	for _, r := range ranks {
		l.places = append(l.places, s.place(i, r))
		l.blocks = append(l.blocks, s.blocks(i, r))
		l.arenas = append(l.arenas, s.arenas[r])
	}
	return l
}

// watch tells Watch.
func (l *Lane) watch(rank int) {
	if l.Watch != nil {
		l.Watch(rank)
	}
}

// Revoked reports whether the segment is revoked at this rank. Waits that need not wait do
// not look.
func (l *Lane) Revoked() bool { return l.segment.revoked.Load() }

// Lent returns n bytes of the arena of a rank of the lane, where its Arena.Ref says; false if
// it has none there.
func (l *Lane) Lent(rank int, r Ref, n int) ([]byte, bool) { return at(l.arenas[rank], r, n) }

// mine is this rank's place.
func (l *Lane) mine() *place { return l.places[l.rank] }

// MismatchError says that another rank has posted something else.
type MismatchError struct {
	Rank   int    // in the lane
	Header Header // what it posted
}

// Error names the rank.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("shm: rank %d has posted another call: %x", e.Rank, e.Header)
}

// Post tells the other ranks what this one is about to do. inline, together at most Inline
// bytes, goes with it.
func (l *Lane) Post(h *Header, refs Refs, inline ...[]byte) {
	p := &l.mine().posts[l.calls%2]
	p.header.set(h)
	p.refs.Dst, p.refs.Src = refs.Dst, refs.Src
	p.digest = h.digest()
	n := 0
	for _, b := range inline {
		n += copy(p.inline[n:], b)
	}
	l.calls++
	l.publish(&p.posted, l.calls)
}

// seen waits until a rank has posted its part of the present call, and returns it. A
// header that is not this rank's own is a *MismatchError.
func (l *Lane) seen(rank int) (*post, error) {
	p := l.post(rank)
	if err := l.await(&p.posted, l.calls, rank); err != nil {
		return nil, err
	}
	if p.digest != l.post(l.rank).digest {
		return nil, &MismatchError{rank, p.header}
	}
	return p, nil
}

// post returns what a rank has posted of the present call.
func (l *Lane) post(rank int) *post { return &l.places[rank].posts[(l.calls-1)%2] }

// Meet waits until all ranks have posted the present call: a barrier.
func (l *Lane) Meet() error {
	for i := range l.size {
		if _, err := l.seen(i); err != nil {
			return err
		}
	}
	return nil
}

// Small folds the vectors that all ranks have posted inline, in the order of ranks, into
// dst.
func Small[T dtype.Number](l *Lane, dst []T, fold func(dst, a, b []T)) error {
	bytes := len(dst) * kernel.Size[T]()
	for i := range l.size {
		p, err := l.seen(i)
		if err != nil {
			return err
		}
		v := of[T](p.inline[:bytes])
		if i == 0 {
			copy(dst, v)
			continue
		}
		fold(dst, dst, v)
	}
	return nil
}

// of views bytes of the segment as elements.
func of[T dtype.Number](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/kernel.Size[T]())
}
