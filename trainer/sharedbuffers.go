package trainer

import (
	"errors"
	"fmt"
	"slices"

	"github.com/elrun/elrun/collective"
)

// sharedBuffers is memory that the ranks of this host share; reductions operate on it without
// copies. It outlives sessions: vectors stay in it until the run ends, or until a session has other
// memory, for example because this peer has a new identity. A failed reduction takes its result
// vector out of the shared memory, because other ranks may still write there. The next session
// copies the content of that vector to a new allocation.
type sharedBuffers struct {
	// comm is the communicator of some session with this memory; nil if no session had shared
	// memory.
	comm *collective.Comm
	full bool // there is no room in the memory
	// allocations are the allocations of the vectors in this memory.
	allocations []allocation
	previous    []allocation // in the old memory, while vectors move
}

// allocation is the memory of one vector.
type allocation struct {
	first  any                           // pointer to the first element, as a key
	shared func(c *collective.Comm) bool // whether the ranks of c share the vector
	free   func() error                  // frees the memory
}

// reachableBy reports whether the ranks of c share all vectors.
func (s *sharedBuffers) reachableBy(c *collective.Comm) bool {
	return !slices.ContainsFunc(s.allocations, func(r allocation) bool { return !r.shared(c) })
}

// freeExcept frees allocations, except those in keep. The memory is no longer in use: all
// reductions into it have ended at the ranks of the session, and elastic reads the state only in
// the goroutine of Run.
func freeExcept(rooms, keep []allocation) error {
	var errs []error
	for _, r := range rooms {
		if find(keep, r.first) < 0 {
			errs = append(errs, r.free())
		}
	}
	return errors.Join(errs...)
}

// find returns the index of the allocation that begins at first, or -1.
func find(rooms []allocation, first any) int {
	return slices.IndexFunc(rooms, func(r allocation) bool { return r.first == first })
}

// migrateVectors returns shared vectors with the contents of the given vectors. A vector that is
// already in the memory is returned as it is. After an error some vectors may have been
// allocated; h.allocations has them.
func migrateVectors[T collective.Number](h *sharedBuffers, vectors ...[]T) ([][]T, error) {
	comm, there := h.comm, make([][]T, len(vectors))
	for i, v := range vectors {
		if len(v) == 0 {
			there[i] = v
			continue
		}
		// A vector that is already in the memory of comm keeps its allocation.
		if k := find(h.previous, &v[0]); k >= 0 && collective.IsShared(comm, v) {
			h.allocations, there[i] = append(h.allocations, h.previous[k]), v
			continue
		}
		w, err := collective.Alloc[T](comm, len(v))
		if err != nil {
			return nil, fmt.Errorf("shared memory for %d gradients: %w", len(v), err)
		}
		h.allocations = append(h.allocations, allocation{
			first:  &w[0],
			shared: func(c *collective.Comm) bool { return collective.IsShared(c, w) },
			free:   func() error { return collective.Free(comm, w) },
		})
		copy(w, v)
		there[i] = w
	}
	return there, nil
}
