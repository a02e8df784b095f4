package shm

import (
	"sync/atomic"
	"unsafe"
)

// A rank detects the death of another rank's process through robust futexes. The end of a
// connection would report the death late: when a process dies, the kernel frees its memory before
// it closes its files, which takes 0.1 ms per MiB. Before that, the kernel walks the list of robust
// futexes of each thread, to release the locks that the thread holds. So each rank has a thread
// that holds a lock for every other rank, and the other rank waits for this lock. The values of a
// lock word are
//
//	0                         the rank has not entered yet, or it has left
//	thread | FUTEX_WAITERS    the rank is alive
//	FUTEX_OWNER_DIED | ...    its process is dead; the kernel writes this and wakes the waiter
//
// Only the rank itself and the kernel write to the words of a rank. If a faulty process writes
// there, a death may be reported wrongly or not at all; there is no other effect.

// robustWord is the lock word by which one rank detects the death of another. There is one word for
// each ordered pair of ranks, because the kernel wakes only one waiter of a word.
type robustWord struct {
	word atomic.Uint32
	_    [4]byte
}

// robustWordSize is the distance of two words, in bytes.
const robustWordSize = int(unsafe.Sizeof(robustWord{}))

// robustWords returns the words that report a rank's death, indexed by the rank that waits for it.
func (s *Segment) robustWords(rank int) []robustWord {
	first := &s.memory[robustOffset(s.size)+rank*s.size*robustWordSize]
	return unsafe.Slice((*robustWord)(unsafe.Pointer(first)), s.size)
}
