package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/elrun/elrun/elastic"
)

// start makes the transport of an attempt that has all planned streams.
func (m *Mesh) start(ctx context.Context, a *attempt) (*Transport, error) {
	s, why := m.share(ctx, a)
	m.neighbours.keep(a.view)
	lone := m.note(a, s, why)
	var err error
	switch {
	case ctx.Err() != nil:
		err = a.blame(context.Cause(ctx))
	case lone >= 0:
		err = m.unshared(a, lone, why)
	}
	if err == nil {
		m.begun.Store(true)
		return newTransport(m.done, m.lanes, a, s), nil
	}
	if s != nil {
		err = errors.Join(err, s.release())
	}
	m.mu.Lock()
	m.forgetLocked(a)
	m.mu.Unlock()
	a.demand.abandon(err)
	if errors.Is(err, elastic.ErrNoView) {
		a.end(Stream.Close) // not Reset: the others find out the reason from the bytes that were written
	} else {
		a.end(Stream.Reset)
	}
	return nil, err
}

// note records in the links why memory is not shared with the ranks with which it could be. It returns the
// first rank with which memory is not shared although one of the two sides insists on it; -1 if there is none.
func (m *Mesh) note(a *attempt, s *sharing, why error) int {
	lone := -1
	for rank := range a.streams {
		l := &a.streams[rank][dataStream]
		if rank == a.self || s != nil && slices.Contains(s.ranks, rank) {
			continue
		}
		if m.sameSite(l) && l.path.Why == "" && why != nil {
			l.path.Why = why.Error()
		}
		if lone < 0 && (m.cfg.Path == ShmPath || l.wants == ShmPath) {
			lone = rank
		}
	}
	return lone
}

// unshared returns the error of an attempt in which no memory is shared with a rank although one of the
// two sides accepts no other path. why is the reason, or nil if it is not known. After a transient failure
// the next view may succeed. If the two ranks can never share memory, and this end has been in a session
// before, the other rank is the newcomer: it counts as lost, so it has to go. In all other cases no later
// view can succeed either, and the error is elastic.ErrNoView.
func (m *Mesh) unshared(a *attempt, rank int, why error) error {
	incompatible := m.incompatible(a, rank)
	if why == nil {
		why = incompatible
	}
	err := fmt.Errorf("no shared memory: %w (the transport auto does without where it must)", why)
	switch {
	case errors.As(why, new(passing)):
		return err
	case incompatible != nil && m.begun.Load():
		return a.lost(rank, err)
	}
	return fmt.Errorf("%w: %w", elastic.ErrNoView, err)
}

// sameSite reports whether the two ends of a link say that they share a kernel, and both want a path
// within the host.
func (m *Mesh) sameSite(l *link) bool {
	return m.cfg.Path <= UnixPath && l.wants <= UnixPath && m.cfg.Site == l.site && l.site != [32]byte{}
}

// incompatible returns why this rank can never share memory with the given rank, or nil.
func (m *Mesh) incompatible(a *attempt, rank int) error {
	l := &a.streams[rank][dataStream]
	if !m.cfg.Path.sharesMemory() {
		return fmt.Errorf("rank %d wants the transport %s", a.self, m.cfg.Path)
	}
	if !l.wants.sharesMemory() {
		return fmt.Errorf("rank %d wants the transport %s", rank, l.wants)
	}
	if m.cfg.Site != l.site || l.site == [32]byte{} {
		return fmt.Errorf("ranks %d and %d are not on one host", min(a.self, rank), max(a.self, rank))
	}
	return nil
}
