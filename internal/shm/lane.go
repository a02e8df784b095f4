package shm

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// Lane runs the calls of one communicator, one after the other. At each rank one goroutine at a
// time may use it. After an error a lane is unusable.
type Lane struct {
	segment  *Segment
	size     int
	rank     int // in the lane
	policies policies
	areas    []*rankArea // by rank of the lane
	// blocks are the blocks of the staged engine, by rank of the lane.
	blocks [][]byte
	arenas [][]byte // by rank of the lane; nil for a rank without one
	views  views
	// ranks are the ranks of the lane, as ranks of the segment.
	ranks       []int
	calls       uint32 // number of calls posted
	directCalls uint32 // number of calls by the direct engine
	doneBlocks  uint32 // number of blocks of all earlier calls together
	// Watch, if set, is called with the rank of the lane for which this rank is about to sleep, and
	// with -1 from time to time while the call makes progress. It serves the detection of stalls.
	Watch func(rank int)
}

// Lane returns lane i of the segment for the given ranks, which include this rank. i is less than
// Lanes. Each of these ranks must call Lane once, with the same i and the same ranks.
func (s *Segment) Lane(i int, ranks []int) *Lane {
	l := &Lane{segment: s, size: len(ranks), ranks: ranks, rank: slices.Index(ranks, s.rank), views: newViews(len(ranks)),
		policies: s.policies(len(ranks))}
	if l.rank < 0 || i < 0 || i >= Lanes {
		panic(fmt.Sprintf("shm: lane %d does not exist, or its ranks %v do not include rank %d", i, ranks, s.rank))
	}
	for _, r := range ranks {
		l.areas = append(l.areas, s.area(i, r))
		l.blocks = append(l.blocks, s.blocks(i, r))
		l.arenas = append(l.arenas, s.arenas[r])
	}
	return l
}

// watch calls Watch, if set.
func (l *Lane) watch(rank int) {
	if l.Watch != nil {
		l.Watch(rank)
	}
}

// Revoked reports whether the segment is revoked at this rank. A wait that is already satisfied
// succeeds also after Revoke.
func (l *Lane) Revoked() bool { return l.segment.revoked.Load() }

// ArenaBytes returns n bytes at r in the arena of a rank of the lane; false if the arena does not
// have them.
func (l *Lane) ArenaBytes(rank int, r Ref, n int) ([]byte, bool) { return at(l.arenas[rank], r, n) }

// own returns this rank's area.
func (l *Lane) own() *rankArea { return l.areas[l.rank] }

// MismatchError is the error of a call that another rank has described differently.
type MismatchError struct {
	Rank   int    // in the lane
	Header Header // the description that this rank posted
}

// Error names the rank.
func (m *MismatchError) Error() string {
	return fmt.Sprintf("shm: rank %d has posted another call, with header %x: call the same collectives in the same order at all ranks", m.Rank, m.Header)
}

// Post posts this rank's description of its next call. The inline vectors, together at most Inline
// bytes, are part of the description. Post copies its arguments and never waits, because a rank
// uses its two slots in turn.
func (l *Lane) Post(h *Header, offsets Offsets, inline ...[]byte) {
	p := &l.own().slots[l.calls%2]
	p.header.set(h)
	p.offsets.Dst, p.offsets.Src = offsets.Dst, offsets.Src
	p.digest = h.digest()
	n := 0
	for _, b := range inline {
		n += copy(p.inline[n:], b)
	}
	l.calls++
	l.publish(&p.posted, l.calls)
}

// awaitSlot waits until a rank has posted the present call, and returns its slot. A header that
// differs from this rank's is a *MismatchError.
func (l *Lane) awaitSlot(rank int) (*slot, error) {
	p := l.slotOf(rank)
	if err := l.await(&p.posted, l.calls, rank); err != nil {
		return nil, err
	}
	// A digest is in the cache line of the counter; comparing headers would fetch another line from
	// each rank.
	if p.digest != l.slotOf(l.rank).digest {
		return nil, &MismatchError{rank, p.header}
	}
	return p, nil
}

// slotOf returns a rank's slot of the present call, which the rank may not have posted yet.
func (l *Lane) slotOf(rank int) *slot { return &l.areas[rank].slots[(l.calls-1)%2] }

// AwaitAll waits until all ranks have posted the present call, as a barrier does. It compares the
// headers of all ranks with this rank's header: a different header is a *MismatchError. A
// revocation ends the wait with an error.
func (l *Lane) AwaitAll() error {
	for i := range l.size {
		if _, err := l.awaitSlot(i); err != nil {
			return err
		}
	}
	return nil
}

// Small reduces the vectors that all ranks have posted inline, in the order of ranks, into dst. It
// is the inline engine: each rank reduces all vectors itself, so all ranks get the same bits and no
// rank waits for the result of another. It returns the errors of AwaitAll.
func Small[T dtype.Number](l *Lane, dst []T, fold func(dst, a, b []T)) error {
	bytes := len(dst) * kernel.Size[T]()
	for i := range l.size {
		p, err := l.awaitSlot(i)
		if err != nil {
			return err
		}
		v := viewAs[T](p.inline[:bytes])
		if i == 0 {
			copy(dst, v)
			continue
		}
		fold(dst, dst, v)
	}
	return nil
}

// viewAs returns bytes of the segment as elements, without a copy.
func viewAs[T dtype.Number](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/kernel.Size[T]())
}
