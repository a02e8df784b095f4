package shm

import (
	"sync/atomic"
	"unsafe"
)

// A rank hears of the death of another rank's process through robust futexes. The connections of
// a dead process end late: the kernel frees its memory before it closes its files, which takes
// 0.1 ms for each mebibyte. Before both it walks the list of robust futexes of each thread, to
// free locks that the dead thread holds. So each rank has a thread that seems to hold one lock
// for each other rank, and the other rank waits for it. The values of a lock word are
//
//	0                         the rank has not entered yet, or it has left
//	thread | FUTEX_WAITERS    the rank is alive
//	FUTEX_OWNER_DIED | ...    its process is dead; the kernel writes this and wakes the waiter
//
// Only the rank itself and the kernel write to the words of a rank. Garbage that another process
// has written there can report a wrong death or hide one, and does nothing else.

// robustWord is the lock word by which one rank hears of the death of another. Each pair of ranks
// has one, as the kernel wakes one waiter of each.
type robustWord struct {
	word atomic.Uint32
	_    [4]byte
}

// robustWordSize is the distance of two words, in bytes.
const robustWordSize = int(unsafe.Sizeof(robustWord{}))

// robustWords returns the words of a rank's death, by the rank that hears of it.
func (s *Segment) robustWords(rank int) []robustWord {
	first := &s.memory[s.size*Lanes*rankAreaSize(s.size)+rank*s.size*robustWordSize]
	return unsafe.Slice((*robustWord)(unsafe.Pointer(first)), s.size)
}
