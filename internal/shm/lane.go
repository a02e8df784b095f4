package shm

import (
	"fmt"
	"time"

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
		v := kernel.Elements[T](p.inline[:bytes])
		if i == 0 {
			copy(dst, v)
			continue
		}
		fold(dst, dst, v)
	}
	return nil
}

// PostVectors is Post for an AllReduce. offsets has the positions of the vectors in the arena, or 0
// for ordinary memory. If such a call fails, other ranks may still write to dst until dst is
// abandoned (Arena.Abandon).
func (l *Lane) PostVectors(h *Header, src []byte, offsets Offsets) {
	var head, tail int
	if offsets.Dst != 0 && offsets.Src != 0 {
		head, tail = offsets.Dst.PageEdges(len(src))
	}
	l.Post(h, offsets, src[:head], src[len(src)-tail:])
}

// mapped stores the vectors of a call in l.views. bytes is the length of each vector. All ranks
// must have posted the call. It reports whether the direct engine can run: all vectors lie in
// arenas, and dst has the same offset in its page at every rank.
func (l *Lane) mapped(bytes int) bool {
	for r := range l.size {
		offsets := l.slotOf(r).offsets
		var there [2]bool
		l.views.dst[r], there[0] = at(l.arenas[r], offsets.Dst, bytes)
		l.views.src[r], there[1] = at(l.arenas[r], offsets.Src, bytes)
		if !there[0] || !there[1] || offsets.Dst.inPage() != l.slotOf(0).offsets.Dst.inPage() {
			return false
		}
	}
	return true
}

// chunkBounds divides the elements from first to end into chunks and returns the chunk of a rank.
// Chunks begin at multiples of align elements after first, so that two ranks do not write to one
// cache line (false sharing).
func (l *Lane) chunkBounds(first, end, align, rank int) (from, to int) {
	chunk := (end - first + l.size - 1) / l.size
	chunk = (chunk + align - 1) / align * align
	return min(first+rank*chunk, end), min(first+(rank+1)*chunk, end)
}

// finish waits until all chunks are reduced. If a rank's call has failed by then, finish waits
// until this segment is revoked, which follows every failure. A direct call counts as one block in
// doneBlocks.
func (l *Lane) finish() error {
	l.doneBlocks++
	mine := l.own()
	mine.filled.value.Store(l.doneBlocks)
	mine.folded.value.Store(l.doneBlocks)
	l.publish(&mine.taken.counter, l.doneBlocks)
	for r, p := range l.areas {
		if err := l.await(&p.chunk.folded, l.directCalls, l.claimedBy(r)); err != nil {
			return err
		}
	}
	for r, p := range l.areas {
		if p.chunk.failed.Load() != 0 {
			return l.await(&p.chunk.folded, l.directCalls+1, r)
		}
	}
	return nil
}

// updateCPU records the core of this rank, which is about to wait, and may move it to another core.
func (l *Lane) updateCPU(now time.Time) {
	if !l.policies.rebalance && !l.policies.stealing || now.Sub(l.policies.cpuUpdated) < updateEvery {
		return
	}
	l.policies.cpuUpdated = now
	core, ok := currentCPU()
	if !ok {
		return
	}
	l.own().cpu.Store(core + 1)
	if l.policies.rebalance && l.migrate(core) {
		if core, ok = currentCPU(); ok {
			l.own().cpu.Store(core + 1)
		}
	}
}

// migrate moves this rank to another core that has at least two ranks fewer than the present core.
// It returns false if there is no such core. The kernel's load balancing would move the rank only
// some milliseconds later, as polling ranks look busy to the kernel. Only the highest rank of a
// core moves, because otherwise several ranks might move to the same core.
func (l *Lane) migrate(core uint32) bool {
	var on cpuLoad
	for r, p := range l.areas {
		c := p.cpu.Load() - 1
		if c == core && r > l.rank {
			return false
		}
		on.add(c)
	}
	return on.migrate(core)
}

// claim reports whether this rank has claimed the chunk of owner in the present direct call, which
// all ranks must have posted. No rank can begin the next call before this rank has finished the
// present one.
func (l *Lane) claim(owner int) bool {
	taken := &l.areas[owner].chunk.claimed
	last := taken.Load()
	return uint32(last>>32) != l.directCalls && taken.CompareAndSwap(last, uint64(l.directCalls)<<32|uint64(l.rank))
}

// claimedBy returns the rank that has claimed the chunk of owner, or owner if no rank has.
func (l *Lane) claimedBy(owner int) int {
	if !l.policies.stealing {
		return owner
	}
	taken := l.areas[owner].chunk.claimed.Load()
	if by := uint32(taken); uint32(taken>>32) == l.directCalls && by < uint32(l.size) {
		return int(by)
	}
	return owner
}

// canSteal reports whether this rank may claim the chunk of owner. Both ranks must share a core,
// whose caches then have the vectors of both. Every core must have at least two ranks: a rank alone
// on a core would finish its own chunk at the same time.
func (l *Lane) canSteal(owner, bytes int) bool {
	if !l.policies.stealing || bytes >= stealBelow {
		return false
	}
	core := l.own().cpu.Load()
	return core != 0 && core == l.areas[owner].cpu.Load()
}

// exceedsCache reports whether the results of all ranks exceed the shared cache. bytes is the size
// of the result at each rank.
func (l *Lane) exceedsCache(bytes int) bool { return bytes*l.size >= l.segment.cacheLimit }
