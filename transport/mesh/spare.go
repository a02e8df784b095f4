package mesh

import (
	"sync"
	"time"

	"github.com/elrun/elrun/internal/shm"
)

// spareAfter is how long after the beginning of a view the memory for the next view is reserved,
// unless the view ends earlier. By then all ranks have begun the view, and the work does not delay
// them.
const spareAfter = 10 * time.Millisecond

// spare is memory that is reserved for the next view of a host. The first rank of the host keeps
// the memory, because it will probably be the first rank in the next view, too. The kernel clears
// new memory, which takes milliseconds. Without the reservation the ranks of the next view would
// wait for that.
//
// Memory is used for one view only, and before that view no other process can map it. The reason: a
// process that was put out of a view, or that is stopped, may write to the memory of that view at
// any later time.
type spare struct {
	mu     sync.Mutex // held while memory is reserved, so that take waits for the reservation
	closed bool
	memory *shm.Memory // nil if there is none
}

// take returns memory of at least size bytes. The caller owns it.
func (s *spare) take(size int) (*shm.Memory, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.memory; m != nil && len(m.Bytes()) >= size {
		s.memory = nil
		return m, nil
	}
	if err := s.dropLocked(); err != nil {
		return nil, err
	}
	return shm.NewMemory(size)
}

// fill reserves size bytes, unless that much is reserved already. With size 0 it releases the
// reserved memory. If it fails nothing is reserved. It holds the lock for milliseconds, so that
// take waits for the memory instead of making memory of its own.
func (s *spare) fill(size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.memory != nil && size > 0 && len(s.memory.Bytes()) >= size {
		return
	}
	_ = s.dropLocked()
	if size > 0 {
		s.memory, _ = shm.NewMemory(size) // take tries again after an error
	}
}

// dropLocked releases the reserved memory.
func (s *spare) dropLocked() error {
	m := s.memory
	s.memory = nil
	if m == nil {
		return nil
	}
	return m.Close()
}

// close releases the reserved memory, and nothing is reserved any more.
func (s *spare) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.dropLocked()
}

// isEmpty reports whether no memory is reserved.
func (s *spare) isEmpty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory == nil
}
