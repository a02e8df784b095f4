package mesh

import (
	"errors"
	"os"
	"sync"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/shm"
)

// arenaSize is the size in bytes of a process's arena, which other processes can map. It reserves
// only addresses: the kernel provides pages as vectors are allocated.
const arenaSize = 1 << (28 + 8*(^uint(0)>>63)) // 64 GiB, and 256 MiB where addresses are short

// hostProcesses are the processes of this host, this one included, each with its two files for
// shared memory: the event that wakes the process, and the arena of its vectors. Neither file ever
// changes. So a process passes its files once, and the others keep them over views. Vectors stay
// allocated over views, too.
type hostProcesses struct {
	self    elastic.ID
	machine func() shm.Machine // reads the properties of the machine, at the first call

	// mu guards the fields below.
	mu sync.Mutex
	// After close no process is added. Processes in use stay until their last release.
	closed   bool
	arenaErr error // why this process has no arena
	byID     map[elastic.ID]*hostProcess
}

// hostProcess is one process of the host.
type hostProcess struct {
	waker *shm.Waker // wakes the process; nil for this process
	// event is the event of this process; nil for other processes.
	event *shm.Event
	arena *shm.Arena // of this process; nil for others, and where there is none
	// bytes is the mapping of the process's arena; nil if it has none.
	bytes []byte
	// file is the file of the arena; close closes it along with the mapping.
	file  *os.File
	close func() error
	// refs and removed together decide when the files are closed: see releaseUnusedLocked.
	// refs is the number of views that use the process.
	refs    int
	removed bool // the process is in no view any more
}

// newHostProcesses returns the hostProcesses of a process before its first view.
func newHostProcesses(self elastic.ID) *hostProcesses {
	return &hostProcesses{self: self, machine: sync.OnceValue(shm.ReadMachine), byID: make(map[elastic.ID]*hostProcess)}
}

// own returns this process and counts a use, which release ends. The first call makes its event and
// its arena. If the arena cannot be made, calls copy the vectors of this process.
func (s *hostProcesses) own() (*hostProcess, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.acquireLocked(s.self); n != nil {
		return n, nil
	}
	if s.closed {
		return nil, errHostClosed()
	}
	event, err := shm.NewEvent()
	if err != nil {
		return nil, err
	}
	n := &hostProcess{event: event, close: event.Close, refs: 1}
	// A failure is remembered: the next view would fail in the same way.
	if s.arenaErr == nil {
		n.arena, s.arenaErr = shm.NewArena(int(arenaSize))
	}
	if n.arena != nil {
		n.bytes, n.file = n.arena.Bytes(), n.arena.File()
		n.close = func() error { return errors.Join(event.Close(), n.arena.Close()) }
	}
	s.byID[s.self] = n
	return n, nil
}

func errHostClosed() error { return errors.New("the host is closed") }

// arenaError returns why this process has no arena; nil if it has one.
func (s *hostProcesses) arenaError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arenaErr
}

// acquire returns a process and counts a use, which release ends. It returns nil if the files of
// the process have not come yet.
func (s *hostProcesses) acquire(id elastic.ID) *hostProcess {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acquireLocked(id)
}

func (s *hostProcesses) acquireLocked(id elastic.ID) *hostProcess {
	n := s.byID[id]
	if n != nil {
		n.refs++
		n.removed = false
	}
	return n
}

// add returns a process whose files have come, and counts a use, which release ends. It owns the
// files from now on, also if there is an error; arena is nil if the process has none.
func (s *hostProcesses) add(id elastic.ID, event, arena *os.File) (*hostProcess, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The first ranks of two views may both send the files of one process.
	if n := s.acquireLocked(id); n != nil {
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
	n := &hostProcess{waker: waker, close: waker.Close, refs: 1}
	if arena != nil {
		// Open closes arena after an error.
		memory, err := shm.Open(arena)
		if err != nil {
			return nil, errors.Join(err, waker.Close())
		}
		n.bytes, n.file = memory.Bytes(), arena
		n.close = func() error { return errors.Join(waker.Close(), memory.Close()) }
	}
	s.byID[id] = n
	return n, nil
}

// openEvent returns a new file of the event that wakes this process, to be passed to a third
// process. The caller closes the file.
func (n *hostProcess) openEvent() (*os.File, error) {
	if n.event != nil {
		return n.event.Again()
	}
	return n.waker.Again()
}

// release ends one use of a process. The files of a process that has left the group are closed when
// the last view with that process ends: until a caller has returned the memory of a view, it may
// read the memory, even after the view is over.
func (s *hostProcesses) release(id elastic.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID[id].refs--
	return s.releaseUnusedLocked(id)
}

// retain releases the processes that are not members of v, each as soon as it is not in use.
func (s *hostProcesses) retain(v elastic.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range s.byID {
		if v.Rank(id) < 0 {
			n.removed = true
			_ = s.releaseUnusedLocked(id) // memory that cannot be unmapped stays mapped
		}
	}
}

// releaseUnusedLocked releases a process, unless it is still needed.
func (s *hostProcesses) releaseUnusedLocked(id elastic.ID) error {
	n := s.byID[id]
	// A process that is still a member keeps its files for the next view.
	if n.refs > 0 || !n.removed && !s.closed {
		return nil
	}
	delete(s.byID, id)
	return n.close()
}

// close releases all processes, each now or when its last use ends.
func (s *hostProcesses) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for id := range s.byID {
		errs = append(errs, s.releaseUnusedLocked(id))
	}
	return errors.Join(errs...)
}
