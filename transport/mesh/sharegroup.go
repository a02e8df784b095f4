package mesh

import (
	"fmt"
	"slices"

	"github.com/elrun/elrun/internal/shm"
)

// findGroup finds the ranks with which this rank can share memory. If there are none it returns
// nil, with an error if there is a reason to report.
func (h *hostMemory) findGroup(a *attempt) (*shmGroup, error) {
	if !h.cfg.Path.sharesMemory() || h.cfg.KernelID == [32]byte{} {
		return nil, nil
	}
	// In a full mesh the hellos tell the kernel ID of each rank. In a sparse view this rank has
	// hellos of few ranks, so there the group follows from the hosts that the members state.
	s := &shmGroup{host: h, view: a.view, sparse: a.sparse, timeout: shareTime}
	stated := memoryGroup(a.view, a.self)
	for rank := range a.streams {
		l := &a.streams[rank][dataStream]
		switch {
		case rank == a.self:
			// ranks grows in the order of ranks, so the index of this rank is its local rank.
			s.localRank = len(s.ranks)
		case a.sparse && !slices.Contains(stated, rank):
			continue
		case !a.planned[rank]:
		case l.kernelID != h.cfg.KernelID:
			continue
		// The group must be the same at all of its ranks. So a rank that does not want to share
		// memory stays in the group, and no rank of the group shares memory.
		case !l.wants.sharesMemory():
			s.disabled = fmt.Errorf("rank %d does not want to share memory", rank)
		}
		s.ranks = append(s.ranks, rank)
		var c unixStream // stays nil for this rank, and for a rank without a Unix socket
		if l.lane != nil {
			c, _ = l.raw.(unixStream)
		}
		s.conns = append(s.conns, c)
	}
	switch n := len(s.ranks); {
	case n == 1:
		return nil, nil
	// The first rank goes on, to tell the others that there is no shared memory.
	case s.disabled != nil && s.localRank > 0:
		return nil, s.disabled
	case n > shm.MaxRanks:
		return nil, fmt.Errorf("%d ranks on one host: shared memory supports at most %d", n, shm.MaxRanks)
	}
	s.processes, s.knownFiles = make([]*hostProcess, len(s.ranks)), make([]uint64, len(s.ranks))
	// Only the first rank exchanges messages with all others. Each other rank uses only its socket
	// to the first rank.
	if s.localRank > 0 {
		clear(s.conns[1:])
	}
	return s, nil
}

// layout returns a number that differs between programs that lay out memory in different ways. In a
// sparse view two ranks may have found different groups, so there the number also differs between
// groups. The first rank compares its number with the numbers of the others before it offers the
// memory.
func (s *shmGroup) layout() uint32 {
	h := uint32(shm.Layout)
	if !s.sparse {
		return h
	}
	for _, rank := range s.ranks {
		h = (h ^ uint32(rank)) * 16777619 // FNV
	}
	return h
}
