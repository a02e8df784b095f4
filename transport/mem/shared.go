package mem

import (
	"errors"
	"sync/atomic"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/internal/shm"
)

// arenaSize is the address space of a rank's arena in bytes. Pages are reserved as they are
// allocated.
const arenaSize = 1 << 30

// NewShared returns endpoints as New does, on simulated hosts: perHost has the number of ranks of
// each host, at most shm.MaxRanks. The ranks of a host share memory; a host with one rank has none.
// Shared memory polls and sleeps in real time, so it is not for synctest bubbles.
func NewShared(perHost ...int) ([]*Transport, error) {
	n := 0
	for _, ranks := range perHost {
		n += ranks
	}
	// The ranks of a host are neighbours.
	all := New(n)
	first := 0
	for _, ranks := range perHost {
		if ranks > 1 {
			if err := share(all[first : first+ranks]); err != nil {
				return nil, err
			}
		}
		first += ranks
	}
	return all, nil
}

// share sets up the shared memory of one host's ranks.
func share(ranks []*Transport) error {
	n := len(ranks)
	h := &host{arenas: make([]*shm.Arena, n)}
	h.users.Store(int64(n))
	members := make([]int, n)
	for i, t := range ranks {
		members[i] = t.self
		if a, err := shm.NewArena(arenaSize); err == nil { // else the rank allocates ordinary memory
			h.arenas[i] = a
		}
	}
	// The segment can be ordinary memory, because all ranks are in one process.
	memory, machine := shm.Ordinary(shm.Size(n)), shm.ReadMachine()
	for i, t := range ranks {
		arenas, err := h.mapFor(i)
		if err != nil {
			return errors.Join(err, h.close())
		}
		segment, err := machine.Attach(memory, arenas, n, i)
		if err != nil {
			return errors.Join(err, h.close())
		}
		t.box.Share(&transport.Shared{Memory: &shm.Attached{Segment: segment, Arena: h.arenas[i]}, Words: segment, Ranks: members, Cause: t.box.Cause, Release: h.release})
	}
	return nil
}

// host is the shared memory of the ranks of one host. It stays mapped until the last rank has
// released it.
type host struct {
	arenas []*shm.Arena  // by rank within the host; nil if there is none
	views  []*shm.Memory // mappings of arenas for other ranks than their owners
	// users is the number of ranks that have not released the memory.
	users atomic.Int64
}

// mapFor maps all arenas for rank i. Each rank has its own mappings of the other ranks' arenas, as
// separate processes would have. So a late rank writes to the pages of its own mapping. It does not
// write to the pages that the owner of an arena gets after the owner has abandoned the old pages.
func (h *host) mapFor(i int) ([][]byte, error) {
	bytes := make([][]byte, len(h.arenas))
	for j, a := range h.arenas {
		switch {
		case a == nil:
		case i == j:
			bytes[j] = a.Bytes()
		default:
			view, err := a.Again()
			if err != nil {
				return nil, err
			}
			h.views = append(h.views, view)
			bytes[j] = view.Bytes()
		}
	}
	return bytes, nil
}

// release ends the use by one rank, and closes the host after the last one.
func (h *host) release() error {
	if h.users.Add(-1) > 0 {
		return nil
	}
	return h.close()
}

// close unmaps and frees all memory.
func (h *host) close() error {
	var err error
	for _, v := range h.views {
		err = errors.Join(err, v.Close())
	}
	for _, a := range h.arenas {
		if a != nil {
			err = errors.Join(err, a.Close())
		}
	}
	return err
}

// Shared implements transport.Sharer.
func (t *Transport) Shared() *transport.Shared { return t.box.Shared() }
