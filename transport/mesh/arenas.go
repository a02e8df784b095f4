package mesh

import (
	"errors"
	"io"
	"os"
	"sync"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/shm"
)

// arenaSize is how much of a process's memory others can map, in bytes. It is only room for
// addresses: pages come with what is allocated.
const arenaSize = 1 << (28 + 8*(^uint(0)>>63)) // 64 GiB, and 256 MiB where addresses are short

// arenas are the memories of this process and of others of its host that vectors can lie
// in. Each is mapped once and kept over sessions, as the vectors are.
type arenas struct {
	mu     sync.Mutex
	closed bool
	own    *shm.Arena              // nil before it is asked for, and if there is none
	why    error                   // there is none
	mapped map[elastic.ID]*mapping // that of this process included
}

// mapping is one arena as this process has it.
type mapping struct {
	bytes []byte
	file  io.Closer
	users int  // transports that use it
	gone  bool // its process is in no view any more
}

// newArenas returns the set of a host.
func newArenas() *arenas { return &arenas{mapped: make(map[elastic.ID]*mapping)} }

// mine returns the arena of this process, of the given ID, or nil where the system has
// none. It is made once.
func (s *arenas) mine(self elastic.ID) *shm.Arena {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own != nil || s.why != nil || s.closed {
		return s.own
	}
	a, err := shm.NewArena(int(arenaSize))
	if err != nil {
		s.why = err
		return nil // vectors are copied, then
	}
	s.own = a
	s.mapped[self] = &mapping{bytes: a.Bytes(), file: a}
	return a
}

// lack returns why this process has no arena; nil if it has one.
func (s *arenas) lack() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// use returns the arena of a process until drop. It takes over the file, which may be nil
// if that is this process.
func (s *arenas) use(id elastic.ID, file *os.File) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mapped[id]
	switch {
	case m != nil && file != nil:
		_ = file.Close() // it is mapped already
	case m == nil && file == nil:
		return nil, errors.New("it is missing")
	case m == nil && s.closed:
		return nil, errors.Join(errors.New("the host is closed"), file.Close())
	case m == nil:
		memory, err := shm.Open(file)
		if err != nil {
			return nil, err
		}
		m = &mapping{bytes: memory.Bytes(), file: memory}
		s.mapped[id] = m
	}
	m.users++
	m.gone = false
	return m.bytes, nil
}

// drop ends one use.
func (s *arenas) drop(id elastic.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mapped[id].users--
	return s.tidyLocked(id)
}

// keep lets go of those that are not members of v, as soon as nothing uses them.
func (s *arenas) keep(v elastic.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, m := range s.mapped {
		if v.Rank(id) < 0 {
			m.gone = true
			_ = s.tidyLocked(id) // what cannot be unmapped stays
		}
	}
}

// tidyLocked unmaps the arena of a process that is not needed any more.
func (s *arenas) tidyLocked(id elastic.ID) error {
	m := s.mapped[id]
	if m.users > 0 || !m.gone && !s.closed {
		return nil
	}
	delete(s.mapped, id)
	return m.file.Close()
}

// close lets go of all, now or when the last use ends.
func (s *arenas) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for id := range s.mapped {
		errs = append(errs, s.tidyLocked(id))
	}
	return errors.Join(errs...)
}
