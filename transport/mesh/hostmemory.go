package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/shm"
)

// hostMemory is the state that this process keeps over all views, to share memory with the other
// members of its host.
type hostMemory struct {
	// cfg is the configuration of the mesh.
	cfg          *Config
	life         *lifetime
	processes    *hostProcesses // the files of the processes of the host
	spare        spare          // memory for the next view
	spareAfter   time.Duration  // the constant spareAfter, except in tests
	wasInSession atomic.Bool    // this end has been in a session
	// launcher is the launcher that reports the ends of its peers at once; "" if there is none.
	launcher string
}

// newHostMemory returns the hostMemory of a process with the ID self before its first view.
func newHostMemory(self elastic.ID, cfg *Config, life *lifetime) *hostMemory {
	given, _ := cfg.Memory.(*shm.Arena)
	return &hostMemory{cfg: cfg, life: life, processes: newHostProcesses(self, given), spareAfter: spareAfter}
}

// close releases the memory that no view uses. The memory of a view is released when the view ends.
func (h *hostMemory) close() error { return errors.Join(h.spare.close(), h.processes.close()) }

// enter makes this rank share memory with the other ranks of its host, when an attempt has all
// planned streams. It returns nil if there is no such rank, or if sharing is impossible and both
// sides accept another path. An error ends the attempt.
func (h *hostMemory) enter(ctx context.Context, a *attempt) (*shmGroup, error) {
	s, why := h.share(ctx, a)
	h.processes.retain(a.view)
	lone := h.recordReasons(a, s, why)
	var err error
	switch {
	case ctx.Err() != nil:
		err = a.blame(context.Cause(ctx))
	case lone >= 0:
		err = h.unshared(a, lone, why)
	}
	if err == nil {
		h.wasInSession.Store(true)
		return s, nil
	}
	if s != nil {
		err = errors.Join(err, s.release())
	}
	return nil, err
}

// share makes this rank share memory with the other ranks of its host. If that is impossible it
// returns nil and the reason; the reason is nil if there is no other rank to share with.
func (h *hostMemory) share(ctx context.Context, a *attempt) (*shmGroup, error) {
	s, err := h.findGroup(a)
	if s == nil {
		h.reserveNext(a.lazy.life, 0)
		return nil, err
	}
	if err := s.negotiate(ctx); err != nil {
		return nil, err
	}
	next := 0
	if s.localRank == 0 {
		next = shm.LargestSize(len(s.ranks) + 1) // leaves room for one rank that joins
	}
	h.reserveNext(a.lazy.life, next)
	return s, nil
}

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

// reserveNext reserves size bytes for the next view, after spareAfter, or as soon as the context
// view ends: then the next view is about to come. With size 0 it releases the reserved memory.
func (h *hostMemory) reserveNext(view context.Context, size int) {
	if size == 0 && h.spare.isEmpty() {
		return
	}
	h.life.run(func() {
		_ = h.life.pause(view, h.spareAfter, errClosed())
		if !h.life.isOver() {
			h.spare.fill(size)
		}
	})
}

// recordReasons records, in the links of the attempt, why memory is not shared with other ranks of
// the host. It returns the first rank with which memory is not shared although one of the two sides
// accepts only ShmPath, or -1 if there is no such rank.
func (h *hostMemory) recordReasons(a *attempt, s *shmGroup, why error) int {
	lone := -1
	for rank := range a.streams {
		l := &a.streams[rank][dataStream]
		if rank == a.self || s != nil && slices.Contains(s.ranks, rank) {
			continue
		}
		// The path reports the reason, so that users see why two ranks of a host copy through
		// sockets.
		if h.sameSite(l) && l.path.Why == "" && why != nil {
			l.path.Why = why.Error()
		}
		if lone < 0 && (h.cfg.Path == ShmPath || l.wants == ShmPath) {
			lone = rank
		}
	}
	return lone
}

// unshared returns the error of an attempt in which no memory is shared with a rank although one of
// the two sides accepts no other path. why is the reason, or nil if it is not known. After a
// transient failure the next view may succeed. If the two ranks can never share memory, and this
// end has been in a session before, the other rank is the newcomer. That rank counts as lost, so it
// is not in the next view. In all other cases no later view can succeed either, and the error is
// elastic.ErrNoView.
func (h *hostMemory) unshared(a *attempt, rank int, why error) error {
	incompatible := h.incompatible(a, rank)
	if why == nil {
		why = incompatible
	}
	err := fmt.Errorf("no shared memory: %w; with the transport auto such ranks use sockets", why)
	switch {
	case errors.As(why, new(transientError)):
		return err
	case incompatible != nil && h.wasInSession.Load():
		return a.lost(rank, err)
	}
	return fmt.Errorf("%w: %w", elastic.ErrNoView, err)
}

// sameSite compares the claims of two hellos, which the files that pass over a Unix socket prove
// later. It reports whether the two ends of a link say that they share a kernel, and both want a
// path within the host.
func (h *hostMemory) sameSite(l *link) bool {
	return h.cfg.Path <= UnixPath && l.wants <= UnixPath && h.cfg.KernelID == l.kernelID && l.kernelID != [32]byte{}
}

// incompatible returns why this rank can never share memory with the given rank, or nil.
func (h *hostMemory) incompatible(a *attempt, rank int) error {
	l := &a.streams[rank][dataStream]
	if !h.cfg.Path.sharesMemory() {
		return fmt.Errorf("rank %d wants the transport %s", a.self, h.cfg.Path)
	}
	if !l.wants.sharesMemory() {
		return fmt.Errorf("rank %d wants the transport %s", rank, l.wants)
	}
	if h.cfg.KernelID != l.kernelID || l.kernelID == [32]byte{} {
		return fmt.Errorf("ranks %d and %d are not on one host", min(a.self, rank), max(a.self, rank))
	}
	return nil
}
