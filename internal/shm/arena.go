package shm

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// pageSize is what allocations are rounded up to, and what Abandon takes out; larger pages
// than this are not reserved in part.
const pageSize = 4 << 10

// Arena is memory of one process from which it takes vectors that others of the host can
// read and write. It is mapped as a whole and without pages; these come with Alloc. All
// methods are safe for concurrent use.
type Arena struct {
	memory *Memory
	base   uintptr // where the memory begins, also when it is not mapped any more
	size   int
	mu     sync.Mutex
	taken  []span // in order, those that are dead included
	held   int    // of these, as many that are not
	closed bool

	some      atomic.Bool // that are abandoned
	abandoned []span
}

// span is a part of the arena, in bytes.
type span struct {
	first, end int
	dead       bool // given back, and not to be taken again
}

// overlaps reports whether the two have bytes in common.
func (s span) overlaps(t span) bool { return s.first < t.end && t.first < s.end }

// NewArena makes an arena out of which at most size bytes can be taken at a time.
func NewArena(size int) (*Arena, error) {
	m, err := newMemory(size)
	if err != nil {
		return nil, err
	}
	return &Arena{memory: m, base: addressOf(m.Bytes()), size: len(m.Bytes())}, nil
}

// File is what the other processes give to Open.
func (a *Arena) File() *os.File { return a.memory.File() }

// Again maps the arena as another process would: what is abandoned is still there.
func (a *Arena) Again() (*Memory, error) { return a.memory.again() }

// Bytes is the whole arena, for Attach.
func (a *Arena) Bytes() []byte { return a.memory.Bytes() }

// Alloc returns n bytes, zero, that begin at a page. They are not the garbage
// collector's: they stay until Free.
func (a *Arena) Alloc(n int) ([]byte, error) {
	if n < 1 {
		return nil, fmt.Errorf("shm: allocate %d bytes", n)
	}
	size := (n + pageSize - 1) / pageSize * pageSize
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, fmt.Errorf("shm: allocate %d bytes: %w", n, os.ErrClosed)
	}
	first, at := 0, len(a.taken)
	for i, s := range a.taken {
		if s.first-first >= size {
			at = i
			break
		}
		first = s.end
	}
	if first+size > len(a.memory.Bytes()) {
		return nil, fmt.Errorf("shm: allocate %d bytes: no room in an arena of %d", n, len(a.memory.Bytes()))
	}
	if err := a.memory.reserve(first, size); err != nil {
		return nil, err
	}
	a.taken = slices.Insert(a.taken, at, span{first: first, end: first + size})
	a.held++
	return a.memory.Bytes()[first : first+n : first+size], nil
}

// Alloc returns n elements of an arena.
func Alloc[T dtype.Number](a *Arena, n int) ([]T, error) {
	b, err := a.Alloc(n * kernel.Size[T]())
	if err != nil {
		return nil, err
	}
	return of[T](b), nil
}

// Free gives back what Alloc returned. Nobody may use it any more, at other processes
// neither.
func (a *Arena) Free(b []byte) error {
	offset, ok := a.offset(b)
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.taken, func(s span) bool { return s.first == offset && !s.dead })
	if !ok || i < 0 {
		return errors.New("shm: free what was not allocated here")
	}
	a.held--
	if a.closed && a.held == 0 {
		return a.memory.Close()
	}
	s := &a.taken[i]
	var err error
	if a.isAbandoned(*s) {
		s.dead = true
		a.abandoned = slices.DeleteFunc(a.abandoned, s.overlaps)
		err = a.memory.detach(s.first, s.end-s.first) // what was written there since goes as well
	}
	err = errors.Join(err, a.memory.release(s.first, s.end-s.first))
	if !s.dead {
		a.taken = slices.Delete(a.taken, i, i+1)
	}
	return err
}

// Abandon takes the whole pages of b, a part of what Alloc returned or ordinary memory, out of
// the arena: other processes may go on to write to them, and it is not seen here. What they
// had is lost. From then on b is ordinary memory, and has no Ref, nor has anything that is
// partly in these pages. Free takes it like any other, but its place is not taken again.
func (a *Arena) Abandon(b []byte) error {
	offset, ok := a.offset(b)
	if !ok {
		return nil
	}
	head, tail := Ref(offset + 1).Edges(len(b))
	s := span{first: offset + head, end: offset + len(b) - tail}
	if s.first == s.end {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.abandoned = append(a.abandoned, s)
	a.some.Store(true)
	return a.memory.detach(s.first, s.end-s.first)
}

// Has reports whether b lies in the arena, or did before it was abandoned.
func (a *Arena) Has(b []byte) bool {
	_, ok := a.offset(b)
	return ok
}

// Freed reports whether b lies in the arena, and not in what is allocated there.
func (a *Arena) Freed(b []byte) bool {
	offset, ok := a.offset(b)
	return ok && len(b) > 0 && !a.isTaken(span{first: offset, end: offset + len(b)})
}

// isTaken reports whether a span lies in one that is allocated.
func (a *Arena) isTaken(s span) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.taken, func(t span) bool {
		return !t.dead && t.first <= s.first && s.end <= t.end
	})
}

func (a *Arena) isAbandoned(s span) bool { return slices.ContainsFunc(a.abandoned, s.overlaps) }

// Ref says where b lies, for at of another process; 0 if it is not in the arena.
func (a *Arena) Ref(b []byte) Ref {
	offset, ok := a.offset(b)
	if !ok || len(b) == 0 {
		return 0
	}
	if a.some.Load() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.isAbandoned(span{first: offset, end: offset + len(b)}) {
			return 0
		}
	}
	return Ref(offset + 1)
}

func (a *Arena) offset(b []byte) (int, bool) {
	p := addressOf(b)
	if p < a.base || p+uintptr(len(b)) > a.base+uintptr(a.size) {
		return 0, false
	}
	return int(p - a.base), true
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// at returns n bytes at a Ref in the memory of a rank's arena; false if there are not
// that many.
func at(memory []byte, r Ref, n int) ([]byte, bool) {
	if r == 0 || uint64(r-1) > uint64(len(memory)) || uint64(n) > uint64(len(memory))-uint64(r-1) {
		return nil, false
	}
	return memory[r-1:][:n:n], true
}

// Close ends the arena. It stays mapped until all that was taken from it is free.
func (a *Arena) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	a.closed = true
	if a.held > 0 {
		return nil
	}
	return a.memory.Close()
}
