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
	given   *shm.Arena         // Config.Memory
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

// newHostProcesses returns the hostProcesses of a process before its first view. given is its arena, nil
// if own makes one.
func newHostProcesses(self elastic.ID, given *shm.Arena) *hostProcesses {
	return &hostProcesses{self: self, given: given, machine: sync.OnceValue(shm.ReadMachine), byID: make(map[elastic.ID]*hostProcess)}
}

// own returns this process and counts a use, which release ends. The first call makes its event and
// its arena. If the arena cannot be made, calls copy the vectors of this process.
func (h *hostProcesses) own() (*hostProcess, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.acquireLocked(h.self); n != nil {
		return n, nil
	}
	if h.closed {
		return nil, errHostClosed()
	}
	event, err := shm.NewEvent()
	if err != nil {
		return nil, err
	}
	n := &hostProcess{event: event, arena: h.given, close: event.Close, refs: 1}
	// A failure is remembered: the next view would fail in the same way.
	if n.arena == nil && h.arenaErr == nil {
		if n.arena, h.arenaErr = shm.NewArena(int(arenaSize)); n.arena != nil {
			n.close = func() error { return errors.Join(event.Close(), n.arena.Close()) }
		}
	}
	if n.arena != nil {
		n.bytes, n.file = n.arena.Bytes(), n.arena.File()
	}
	h.byID[h.self] = n
	return n, nil
}

func errHostClosed() error { return errors.New("the host is closed") }

// arenaError returns why this process has no arena; nil if it has one.
func (h *hostProcesses) arenaError() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.arenaErr
}

// acquire returns a process and counts a use, which release ends. It returns nil if the files of
// the process have not come yet.
func (h *hostProcesses) acquire(id elastic.ID) *hostProcess {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.acquireLocked(id)
}

func (h *hostProcesses) acquireLocked(id elastic.ID) *hostProcess {
	n := h.byID[id]
	if n != nil {
		n.refs++
		n.removed = false
	}
	return n
}

// add returns a process whose files have come, and counts a use, which release ends. It owns the
// files from now on, also if there is an error; arena is nil if the process has none.
func (h *hostProcesses) add(id elastic.ID, event, arena *os.File) (*hostProcess, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// The first ranks of two views may both send the files of one process.
	if n := h.acquireLocked(id); n != nil {
		closeFiles([]*os.File{event, arena}) // the same files came before
		return n, nil
	}
	if h.closed {
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
	h.byID[id] = n
	return n, nil
}

// openEvent returns a new file of the event that wakes this process, to be passed to a third
// process. The caller closes the file.
func (h *hostProcess) openEvent() (*os.File, error) {
	if h.event != nil {
		return h.event.Again()
	}
	return h.waker.Again()
}

// release ends one use of a process. The files of a process that has left the group are closed when
// the last view with that process ends: until a caller has returned the memory of a view, it may
// read the memory, even after the view is over.
func (h *hostProcesses) release(id elastic.ID) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.byID[id].refs--
	return h.releaseUnusedLocked(id)
}

// retain releases the processes that are not members of v, each as soon as it is not in use.
func (h *hostProcesses) retain(v elastic.View) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, n := range h.byID {
		if v.Rank(id) < 0 {
			n.removed = true
			_ = h.releaseUnusedLocked(id) // memory that cannot be unmapped stays mapped
		}
	}
}

// releaseUnusedLocked releases a process, unless it is still needed.
func (h *hostProcesses) releaseUnusedLocked(id elastic.ID) error {
	n := h.byID[id]
	// A process that is still a member keeps its files for the next view.
	if n.refs > 0 || !n.removed && !h.closed {
		return nil
	}
	delete(h.byID, id)
	return n.close()
}

// close releases all processes, each now or when its last use ends.
func (h *hostProcesses) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	var errs []error
	for id := range h.byID {
		errs = append(errs, h.releaseUnusedLocked(id))
	}
	return errors.Join(errs...)
}
