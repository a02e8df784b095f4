package mesh

import (
	"errors"
	"os"
	"sync"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/shm"
)

// arenaSize is the size of a process's arena, which others can map, in bytes. It reserves only
// addresses: the kernel provides pages as vectors are allocated.
const arenaSize = 1 << (28 + 8*(^uint(0)>>63)) // 64 GiB, and 256 MiB where addresses are short

// neighbours are the processes of this host, this one included, each with its two files for shared memory: the
// event that wakes the process, and the arena of its vectors. Neither file ever changes. So a process passes
// its files once, and the others keep them over views. Vectors stay allocated over views, too.
type neighbours struct {
	self    elastic.ID
	machine func() shm.Machine // reads the properties of the machine, at the first call

	mu     sync.Mutex
	closed bool
	lacks  error // why this process has no arena
	known  map[elastic.ID]*neighbour
}

// neighbour is one process of the host.
type neighbour struct {
	waker *shm.Waker // wakes the process; nil for this process
	event *shm.Event // of this process; nil for others
	arena *shm.Arena // of this process; nil for others, and where there is none
	bytes []byte     // of the arena; nil if the process has none
	file  *os.File   // of the arena; close closes it along with the mapping
	close func() error
	users int  // the number of views that use it
	gone  bool // the process is in no view any more
}

// newNeighbours returns the neighbours of a process before its first view.
func newNeighbours(self elastic.ID) *neighbours {
	return &neighbours{self: self, machine: sync.OnceValue(shm.ReadMachine), known: make(map[elastic.ID]*neighbour)}
}

// own returns this process and counts a use, which drop ends. The first call makes its event and its arena. If
// the arena cannot be made, calls copy the vectors of this process.
func (s *neighbours) own() (*neighbour, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.holdLocked(s.self); n != nil {
		return n, nil
	}
	if s.closed {
		return nil, errHostClosed()
	}
	event, err := shm.NewEvent()
	if err != nil {
		return nil, err
	}
	n := &neighbour{event: event, close: event.Close, users: 1}
	if s.lacks == nil {
		n.arena, s.lacks = shm.NewArena(int(arenaSize))
	}
	if n.arena != nil {
		n.bytes, n.file = n.arena.Bytes(), n.arena.File()
		n.close = func() error { return errors.Join(event.Close(), n.arena.Close()) }
	}
	s.known[s.self] = n
	return n, nil
}

func errHostClosed() error { return errors.New("the host is closed") }

// lack returns why this process has no arena; nil if it has one.
func (s *neighbours) lack() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lacks
}

// hold returns a process and counts a use, which drop ends. It returns nil if the files of the process have not
// come yet.
func (s *neighbours) hold(id elastic.ID) *neighbour {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holdLocked(id)
}

func (s *neighbours) holdLocked(id elastic.ID) *neighbour {
	n := s.known[id]
	if n != nil {
		n.users++
		n.gone = false
	}
	return n
}

// take returns a process whose files have come, and counts a use, which drop ends. It owns the files from now
// on, also if there is an error; arena is nil if the process has none.
func (s *neighbours) take(id elastic.ID, event, arena *os.File) (*neighbour, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.holdLocked(id); n != nil {
		closeFiles([]*os.File{event, arena}) // the same files came before
		return n, nil
	}
	if s.closed {
		closeFiles([]*os.File{event, arena})
		return nil, errHostClosed()
	}
	waker, err := shm.OpenWaker(event)
	if err != nil {
		closeFiles([]*os.File{arena})
		return nil, err
	}
	n := &neighbour{waker: waker, close: waker.Close, users: 1}
	if arena != nil {
		memory, err := shm.Open(arena)
		if err != nil {
			return nil, errors.Join(err, waker.Close())
		}
		n.bytes, n.file = memory.Bytes(), arena
		n.close = func() error { return errors.Join(waker.Close(), memory.Close()) }
	}
	s.known[id] = n
	return n, nil
}

// openEvent returns a new file of the event that wakes this neighbour, to be passed to a third process. The
// caller closes the file.
func (n *neighbour) openEvent() (*os.File, error) {
	if n.event != nil {
		return n.event.Again()
	}
	return n.waker.Again()
}

// drop ends one use of a process.
func (s *neighbours) drop(id elastic.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[id].users--
	return s.tidyLocked(id)
}

// keep releases the processes that are not members of v, each as soon as nothing uses it.
func (s *neighbours) keep(v elastic.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range s.known {
		if v.Rank(id) < 0 {
			n.gone = true
			_ = s.tidyLocked(id) // memory that cannot be unmapped stays mapped
		}
	}
}

// tidyLocked releases a process, unless it is still needed.
func (s *neighbours) tidyLocked(id elastic.ID) error {
	n := s.known[id]
	if n.users > 0 || !n.gone && !s.closed {
		return nil
	}
	delete(s.known, id)
	return n.close()
}

// shut releases all processes, each now or when its last use ends.
func (s *neighbours) shut() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for id := range s.known {
		errs = append(errs, s.tidyLocked(id))
	}
	return errors.Join(errs...)
}
