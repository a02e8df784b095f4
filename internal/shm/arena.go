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

// pageSize is the unit of allocations and of Abandon. Huge pages are not used, because a part of a
// huge page can be neither reserved nor abandoned.
const pageSize = 4 << 10

// Arena is memory of one process from which it allocates vectors that the other processes of the
// host can read and write. Its address space is mapped at once; Alloc reserves the pages. All
// methods are safe for concurrent use.
type Arena struct {
	memory *Memory
	base   uintptr // address of the memory, also after it was unmapped
	size   int
	// mu guards the fields below, except for anyAbandoned.
	mu     sync.Mutex
	spans  []span // allocated and retired spans, by address
	live   int    // number of spans that are not retired
	closed bool   // after Close; the last Free then unmaps the memory

	anyAbandoned atomic.Bool // set before the first Abandon returns; while it is false, Ref does not take the lock
	abandoned    []span      // spans whose pages other processes no longer share
}

// span is a part of the arena, in bytes.
type span struct {
	first, end int
	// retired means that the span was freed after Abandon; its addresses are not used again.
	retired bool
}

// overlaps reports whether the spans have bytes in common.
func (s span) overlaps(t span) bool { return s.first < t.end && t.first < s.end }

// NewArena returns an arena from which size bytes can be allocated at a time. It reserves addresses
// only; Alloc reserves the pages. The caller closes the arena.
func NewArena(size int) (*Arena, error) {
	m, err := newMemory(size)
	if err != nil {
		return nil, err
	}
	return &Arena{memory: m, base: addressOf(m.Bytes()), size: len(m.Bytes())}, nil
}

// AdoptArena returns an arena over memory that another process has made and uses, too, with its first
// used bytes: they are an allocation, and the arena allocates from the rest. So vectors of that process
// lie in the arena. The file is a memory file as NewMemory makes it, sealed against changes of its size.
// It stays with the caller. The caller closes the arena.
func AdoptArena(file *os.File, used int) (*Arena, error) {
	m, err := openAgain(file)
	if err != nil {
		return nil, err
	}
	size := len(m.Bytes())
	if used < 1 || used > size {
		return nil, errors.Join(fmt.Errorf("shm: adopt %d bytes of a memory of %d: want at least 1 byte, and no more than it has", used, size), m.Close())
	}
	// In memory that ends within a page, the last allocation ends there, too.
	end := min((used+pageSize-1)/pageSize*pageSize, size)
	if err := m.reserve(0, end); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &Arena{memory: m, base: addressOf(m.Bytes()), size: size, spans: []span{{first: 0, end: end}}, live: 1}, nil
}

// File returns the file of the memory. Other processes map it by Open. The arena owns it.
func (a *Arena) File() *os.File { return a.memory.File() }

// Again returns a second mapping of the arena, like the mapping of another process: abandoned pages
// are still in it.
func (a *Arena) Again() (*Memory, error) { return a.memory.again() }

// Bytes returns the whole arena, for Attach.
func (a *Arena) Bytes() []byte { return a.memory.Bytes() }

// Alloc returns n zero bytes that begin at a page. The garbage collector does not manage them: they
// stay allocated until Free. It fails if n is below 1, if no gap of the arena is large enough, if
// the system has no pages left, and after Close. It is safe for concurrent use, as is Free.
func (a *Arena) Alloc(n int) ([]byte, error) {
	if n < 1 {
		return nil, fmt.Errorf("shm: allocate %d bytes: want at least 1", n)
	}
	size := (n + pageSize - 1) / pageSize * pageSize
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, fmt.Errorf("shm: allocate %d bytes: %w", n, os.ErrClosed)
	}
	// First fit: take the first gap between two spans that is large enough.
	first, at := 0, len(a.spans)
	for i, s := range a.spans {
		if s.first-first >= size {
			at = i
			break
		}
		first = s.end
	}
	if first+size > len(a.memory.Bytes()) {
		return nil, fmt.Errorf("shm: allocate %d bytes: no gap of this size in an arena of %d", n, len(a.memory.Bytes()))
	}
	if err := a.memory.reserve(first, size); err != nil {
		return nil, err
	}
	a.spans = slices.Insert(a.spans, at, span{first: first, end: first + size})
	a.live++
	// The capacity includes the rest of the last page, which belongs to this allocation.
	return a.memory.Bytes()[first : first+n : first+size], nil
}

// Alloc returns n elements of an arena.
func Alloc[T dtype.Number](a *Arena, n int) ([]T, error) {
	b, err := a.Alloc(n * kernel.Size[T]())
	if err != nil {
		return nil, err
	}
	return kernel.Elements[T](b), nil
}

// Free frees a result of Alloc, which must begin where the result began. No process may use the
// memory any more. For memory that is no result of Alloc, Free returns an error.
func (a *Arena) Free(b []byte) error {
	offset, ok := a.offset(b)
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.spans, func(s span) bool { return s.first == offset && !s.retired })
	if !ok || i < 0 {
		return errors.New("shm: free: no allocation of this arena begins at this slice: it was freed already, or is not the result of Alloc")
	}
	a.live--
	if a.closed && a.live == 0 {
		return a.memory.Close()
	}
	s := &a.spans[i]
	var err error
	if a.isAbandoned(*s) {
		s.retired = true
		a.abandoned = slices.DeleteFunc(a.abandoned, s.overlaps)
		err = a.memory.detach(s.first, s.end-s.first) // also frees its private pages
	}
	err = errors.Join(err, a.memory.release(s.first, s.end-s.first))
	if !s.retired {
		a.spans = slices.Delete(a.spans, i, i+1)
	}
	return err
}

// Abandon removes the pages that b fills from the arena: this process no longer sees writes of
// other processes to them. It is for the result of a failed call, to which a rank that was put out
// of the group may still write. The content of these pages is lost. From then on b is ordinary
// memory: Ref returns 0 for b and for every vector that overlaps these pages. b is a part of a
// result of Alloc; for other memory Abandon does nothing. Free still frees the allocation, but its
// addresses are not used again.
func (a *Arena) Abandon(b []byte) error {
	offset, ok := a.offset(b)
	if !ok {
		return nil
	}
	// Only whole pages can be remapped.
	head, tail := Ref(offset + 1).PageEdges(len(b))
	s := span{first: offset + head, end: offset + len(b) - tail}
	if s.first == s.end {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.abandoned = append(a.abandoned, s)
	// Set before detach, so that no Ref to these pages is returned after Abandon has returned.
	a.anyAbandoned.Store(true)
	return a.memory.detach(s.first, s.end-s.first)
}

// Has reports whether b lies in the arena's addresses, abandoned or not.
func (a *Arena) Has(b []byte) bool {
	_, ok := a.offset(b)
	return ok
}

// Freed reports whether b lies in the arena outside its allocations, as after Free.
func (a *Arena) Freed(b []byte) bool {
	offset, ok := a.offset(b)
	return ok && len(b) > 0 && !a.isTaken(span{first: offset, end: offset + len(b)})
}

// isTaken reports whether a span lies in an allocation.
func (a *Arena) isTaken(s span) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.spans, func(t span) bool {
		return !t.retired && t.first <= s.first && s.end <= t.end
	})
}

// isAbandoned reports whether an abandoned page is in a span. mu is held.
func (a *Arena) isAbandoned(s span) bool { return slices.ContainsFunc(a.abandoned, s.overlaps) }

// Ref returns the position of b, by which other processes find b; 0 if b is not in the arena or
// overlaps abandoned pages.
func (a *Arena) Ref(b []byte) Ref {
	offset, ok := a.offset(b)
	if !ok || len(b) == 0 {
		return 0
	}
	if a.anyAbandoned.Load() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.isAbandoned(span{first: offset, end: offset + len(b)}) {
			return 0
		}
	}
	return Ref(offset + 1)
}

// offset returns the offset of b in the arena. ok is false if b lies outside. It needs no lock:
// base and size never change, even after Close.
func (a *Arena) offset(b []byte) (int, bool) {
	p := addressOf(b)
	if p < a.base || p+uintptr(len(b)) > a.base+uintptr(a.size) {
		return 0, false
	}
	return int(p - a.base), true
}

// addressOf returns the address of a slice as a number, which does not keep the memory alive.
func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// at returns n bytes at r in the memory of an arena, and false if the arena does not have all of
// them. r comes from another process, so it may have any value.
func at(memory []byte, r Ref, n int) ([]byte, bool) {
	if r == 0 || uint64(r-1) > uint64(len(memory)) || uint64(n) > uint64(len(memory))-uint64(r-1) {
		return nil, false
	}
	return memory[r-1:][:n:n], true
}

// Close ends the arena. Its memory stays mapped until all allocations are freed.
func (a *Arena) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	a.closed = true
	if a.live > 0 {
		return nil
	}
	return a.memory.Close()
}
