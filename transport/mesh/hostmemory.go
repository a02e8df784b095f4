package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/elastic"
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
	return &hostMemory{cfg: cfg, life: life, processes: newHostProcesses(self), spareAfter: spareAfter}
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
