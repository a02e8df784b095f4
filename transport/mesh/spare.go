package mesh

import (
	"errors"
	"sync"
	"time"

	"github.com/elrun/elrun/internal/shm"
)

// spareAfter is how long after a view has begun memory for the next one is reserved: then its ranks do not
// wait for the processor any more.
const spareAfter = 10 * time.Millisecond

// spare is memory for the next view of a host, kept by the process that is likely to make it: the first of the
// present view. To reserve memory takes milliseconds, as the kernel clears it, and the ranks of a view would
// wait for it.
//
// Memory is used for one view only, and no other process has it before. A process that was put out of a view,
// or that is stopped, may write to that view's memory at any later time.
type spare struct {
	mu     sync.Mutex // held while memory is reserved: who needs it meanwhile waits for it
	closed bool
	memory *shm.Memory // nil if there is none
}

// take returns memory of at least size bytes, which is the caller's.
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

// fill reserves size bytes, unless as much is there; 0 gives back what is there. Without memory there
// is no spare.
func (s *spare) fill(size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.memory != nil && size > 0 && len(s.memory.Bytes()) >= size {
		return
	}
	_ = s.dropLocked()
	if size > 0 {
		s.memory, _ = shm.NewMemory(size) // if that fails take tries again
	}
}

// dropLocked gives back what is there.
func (s *spare) dropLocked() error {
	m := s.memory
	s.memory = nil
	if m == nil {
		return nil
	}
	return m.Close()
}

// close gives back what is there, for good.
func (s *spare) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.dropLocked()
}

// isEmpty reports whether there is none.
func (s *spare) isEmpty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory == nil
}

// prepare reserves size bytes for the next view, in a moment, or with 0 gives back what is reserved.
func (m *Mesh) prepare(size int) {
	if size == 0 && m.spare.isEmpty() || !m.begin() {
		return
	}
	go func() {
		defer m.working.Done()
		if m.pause(m.life, spareAfter, errors.New("closed")) == nil {
			m.spare.fill(size)
		}
	}()
}
