package trainer

import (
	"errors"
	"fmt"
	"slices"

	"github.com/elrun/elrun/collective"
)

// sharedBuffers is memory that the ranks of this host share, from which reductions need not
// copy. It outlives sessions: vectors stay in it until a session has other memory, as it
// has when this peer comes back under another identity, or the run ends. One into which a
// reduction has failed is not in it any more, and moves.
type sharedBuffers struct {
	comm        *collective.Comm // of a session with that memory; nil if there was none
	full        bool             // there is no room in it
	allocations []allocation
	previous    []allocation // of the memory before, while vectors move
}

// allocation is the place of one vector.
type allocation struct {
	first  any // where it begins
	shared func(c *collective.Comm) bool
	free   func() error
}

// reachableBy reports whether c's ranks share all vectors.
func (h *sharedBuffers) reachableBy(c *collective.Comm) bool {
	return !slices.ContainsFunc(h.allocations, func(r allocation) bool { return !r.shared(c) })
}

// freeExcept gives the memory of vectors back, but for those to keep. Nothing uses it any more:
// reductions have ended at all ranks that use their sums, and elastic asks for the state
// from the goroutine of Run only.
func freeExcept(rooms, keep []allocation) error {
	var errs []error
	for _, r := range rooms {
		if find(keep, r.first) < 0 {
			errs = append(errs, r.free())
		}
	}
	return errors.Join(errs...)
}

// find returns which of the rooms is that of the vector that begins there, or -1.
func find(rooms []allocation, first any) int {
	return slices.IndexFunc(rooms, func(r allocation) bool { return r.first == first })
}

// migrateVectors returns vectors in the memory, with what is in those given: the same where they are
// there already. After an error some of them may be there.
func migrateVectors[T collective.Number](h *sharedBuffers, vectors ...[]T) ([][]T, error) {
	comm, there := h.comm, make([][]T, len(vectors))
	for i, v := range vectors {
		if len(v) == 0 {
			there[i] = v
			continue
		}
		if k := find(h.previous, &v[0]); k >= 0 && collective.IsShared(comm, v) {
			h.allocations, there[i] = append(h.allocations, h.previous[k]), v
			continue
		}
		w, err := collective.Alloc[T](comm, len(v))
		if err != nil {
			return nil, fmt.Errorf("memory for %d gradients: %w", len(v), err)
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

// migrate moves all three: the two buffers take turns as what is reduced into.
func (p *floatAccumulator) migrate(h *sharedBuffers) error {
	there, err := migrateVectors(h, p.own.flat, p.bufs.staging.flat, p.bufs.applied.flat)
	if err != nil {
		return err
	}
	for i, v := range []*vector{&p.own, &p.bufs.staging, &p.bufs.applied} {
		*v = vector{there[i], cut(p.layout, there[i])}
	}
	return nil
}

// migrate moves the integers only. The buffers of floats are not reduced, and are aligned as
// computing wants it.
func (q *exactAccumulator) migrate(h *sharedBuffers) error {
	there, err := migrateVectors(h, q.own, q.all)
	if err != nil {
		return err
	}
	q.own, q.all = there[0], there[1]
	q.views, q.parts = cut(q.layout, q.own), cut(q.layout, q.all)
	return nil
}

// migrate leaves all where it is, as codes travel in messages.
func (c *compressedAccumulator) migrate(*sharedBuffers) error { return nil }
