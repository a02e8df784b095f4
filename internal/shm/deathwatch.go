package shm

import (
	"sync/atomic"
	"unsafe"
)

// A rank hears of the death of another rank's process through robust futexes. The connections of
// a dead process end late: the kernel frees its memory before it closes its files, which takes
// 0.1 ms for each mebibyte. Before both it walks the list of robust futexes of each thread, to free
// locks that the dead thread holds. So each rank has a thread that seems to hold a lock for every
// other rank, and that other rank waits for the lock. The values of a lock word are
//
//	0                         the rank has not entered yet, or it has left
//	thread | FUTEX_WAITERS    the rank is alive
//	FUTEX_OWNER_DIED | ...    its process is dead; the kernel writes this and wakes the waiter
//
// Only the rank itself and the kernel write to the words of a rank. If another process writes
// garbage there, that can report a wrong death or hide one, and has no other effect.

// robustWord is the lock word by which one rank hears of the death of another. There is one for
// each pair of ranks, as the kernel wakes only one waiter of a word.
type robustWord struct {
	word atomic.Uint32
	_    [4]byte
}

// robustWordSize is the distance of two words, in bytes.
const robustWordSize = int(unsafe.Sizeof(robustWord{}))

// robustWords returns the words that report a rank's death, indexed by the rank that hears of it.
func (s *Segment) robustWords(rank int) []robustWord {
	first := &s.memory[s.size*Lanes*rankAreaSize(s.size)+rank*s.size*robustWordSize]
	return unsafe.Slice((*robustWord)(unsafe.Pointer(first)), s.size)
}
