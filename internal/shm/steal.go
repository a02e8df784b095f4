package shm

import (
	"sync/atomic"
	"unsafe"
)

// stealBelow is the length in bytes below which a vector's chunks may be stolen. Stealing saves
// the context switch to the chunk's own rank. A chunk of a longer vector takes longer than a
// context switch, and is slower to reduce for a process that has not touched its pages.
const stealBelow = 128 << 10

// chunk assigns a rank's chunk of a direct call to the rank that reduces it: the chunk's own rank,
// or another rank that steals it. If each rank has a core of its own, no other rank reads the first
// cache line of this struct.
type chunk struct {
	claimed atomic.Uint64 // upper half: the last direct call in which it was claimed; lower half: the rank that claimed it
	_       [cacheLine - 8]byte
	folded  counter       // the last direct call in which it was reduced
	failed  atomic.Uint32 // not 0 once a call of its rank has failed
	_       [cacheLine - unsafe.Sizeof(counter{}) - 4]byte
}

// claim reports whether this rank has claimed the chunk of owner in the present direct call, which
// all ranks must have posted. No rank can begin the next call before this rank has finished this
// one.
func (l *Lane) claim(owner int) bool {
	taken := &l.areas[owner].chunk.claimed
	last := taken.Load()
	return uint32(last>>32) != l.directCalls && taken.CompareAndSwap(last, uint64(l.directCalls)<<32|uint64(l.rank))
}

// claimedBy returns the rank that has claimed the chunk of owner, or owner if no rank has.
func (l *Lane) claimedBy(owner int) int {
	if !l.sharedCores {
		return owner
	}
	taken := l.areas[owner].chunk.claimed.Load()
	if by := uint32(taken); uint32(taken>>32) == l.directCalls && by < uint32(l.size) {
		return int(by)
	}
	return owner
}

// canSteal reports whether this rank may claim the chunk of owner. Both must share a core, whose
// caches then have the vectors of both, and every core must have at least two ranks: a rank alone
// on a core finishes its own chunk as early.
func (l *Lane) canSteal(owner, bytes int) bool {
	if !l.sharedCores || bytes >= stealBelow {
		return false
	}
	core := l.own().cpu.Load()
	return core != 0 && core == l.areas[owner].cpu.Load()
}
