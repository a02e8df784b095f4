package shm

import (
	"sync/atomic"
	"unsafe"
)

// How ranks hear of the death of another's process. Its connections end last: the system
// takes its memory apart before it closes its files, which takes 0.1 ms for each mebibyte.
// Ahead of both Linux looks through the robust futexes of each of its threads, as it does
// to free the locks of the dead. So each rank has a thread that seems to hold a lock for
// each other rank, which waits for it:
//
//	0                         the rank has not come yet, or it has left
//	thread | FUTEX_WAITERS    it lives
//	FUTEX_OWNER_DIED | ...    its process is at its end; the kernel writes that, and wakes
//
// Only the rank itself and the kernel write to its words, and others no more than look: what
// another process has spoilt there names a wrong death or hides one, and does nothing else.

// cell has the word by which one rank hears of the death of another. There is one for each
// pair, as the kernel wakes one sleeper of each.
type cell struct {
	word atomic.Uint32
	_    [4]byte
}

// cellSize is the distance of two cells, in bytes.
const cellSize = int(unsafe.Sizeof(cell{}))

// cells returns those of a rank's death, by who hears of it.
func (s *Segment) cells(rank int) []cell {
	first := &s.memory[s.size*Lanes*placeSize(s.size)+rank*s.size*cellSize]
	return unsafe.Slice((*cell)(unsafe.Pointer(first)), s.size)
}
