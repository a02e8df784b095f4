package mem

import (
	"errors"
	"sync/atomic"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/internal/shm"
)

// arenaSize is the address space of a rank's arena; pages come as they are allocated.
const arenaSize = 1 << 30

// NewShared returns endpoints as New does, on hosts with so many ranks each, at most
// shm.MaxRanks. Those of one host share memory, one alone has none. That polls and sleeps in real time: it is
// not for synctest bubbles.
func NewShared(perHost ...int) ([]*Transport, error) {
	n := 0
	for _, ranks := range perHost {
		n += ranks
	}
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

// share gives a host's ranks memory.
func share(ranks []*Transport) error {
	n := len(ranks)
	h := &host{arenas: make([]*shm.Arena, n)}
	h.users.Store(int64(n))
	members := make([]int, n)
	for i, t := range ranks {
		members[i] = t.self
		if a, err := shm.NewArena(arenaSize); err == nil { // else it allocates ordinary memory
			h.arenas[i] = a
		}
	}
	memory := shm.Ordinary(shm.Size(n))
	for i, t := range ranks {
		arenas, err := h.mapFor(i)
		if err != nil {
			return errors.Join(err, h.close())
		}
		segment, err := shm.Attach(memory, arenas, n, i)
		if err != nil {
			return errors.Join(err, h.close())
		}
		t.box.Share(&transport.Shared{Memory: &shm.Attached{Segment: segment, Arena: h.arenas[i]}, Ranks: members, Cause: t.box.Cause, Release: h.release})
	}
	return nil
}

// host is what ranks that share memory have in common. Mappings stay until the last has
// released them.
type host struct {
	arenas []*shm.Arena
	views  []*shm.Memory // of the arenas, by others than their ranks
	users  atomic.Int64
}

// mapFor maps the arenas of all for rank i: each rank has views of its own of those of others,
// as processes have. One that is late writes there then, and not into what an owner that gave
// memory up has in its place.
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

func (h *host) release() error {
	if h.users.Add(-1) > 0 {
		return nil
	}
	return h.close()
}

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
