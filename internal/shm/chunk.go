package shm

import (
	"sync/atomic"
	"unsafe"
)

// helpedBelow is how long vectors may be, in bytes, of which a rank folds the chunks of others
// as well. It saves that their processes have to have a turn each; longer ones take longer
// than that, and processes of which each touches other pages are slower.
const helpedBelow = 128 << 10

// chunk is how a rank's chunk of a direct call is handed to who folds it: its rank, or one that
// was there before. Where each rank has a core nobody else looks at the first line.
type chunk struct {
	taken  atomic.Uint64 // the direct call in which somebody has taken it last, and in the lower half who
	_      [line - 8]byte
	folded word          // the direct call in which it was folded last
	failed atomic.Uint32 // not 0 once a call of its rank has failed
	_      [line - unsafe.Sizeof(word{}) - 4]byte
}

// take reports whether the chunk of owner, in the present direct call, is for this rank to fold.
// All must have posted the call: so nobody can be at the next one while this rank is at it.
func (l *Lane) take(owner int) bool {
	taken := &l.places[owner].chunk.taken
	last := taken.Load()
	return uint32(last>>32) != l.directs && taken.CompareAndSwap(last, uint64(l.directs)<<32|uint64(l.rank))
}

// holder returns for whom a rank waits that waits for the chunk of owner: who has taken it, or
// owner if nobody has.
func (l *Lane) holder(owner int) int {
	if !l.crowded {
		return owner
	}
	taken := l.places[owner].chunk.taken.Load()
	if by := uint32(taken); uint32(taken>>32) == l.directs && by < uint32(l.size) {
		return int(by)
	}
	return owner
}

// helps reports whether this rank folds the chunk of owner if that has not begun: where both
// are on one core, and so the vectors of both near to it, and no core has a single rank, which
// would be done with its own chunk no sooner.
func (l *Lane) helps(owner, bytes int) bool {
	if !l.crowded || bytes >= helpedBelow {
		return false
	}
	core := l.mine().core.Load()
	return core != 0 && core == l.places[owner].core.Load()
}
