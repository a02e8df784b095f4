package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/direct"
)

// start makes the transport of an attempt that has all lines.
func (h *Host) start(ctx context.Context, a *attempt) (*Transport, error) {
	s, why := h.share(ctx, a)
	h.arenas.keep(a.view)
	lone := h.note(a, s, why)
	var err error
	switch {
	case ctx.Err() != nil:
		err = a.blame(context.Cause(ctx))
	case lone >= 0:
		err = h.unshared(a, lone, why)
	}
	if err == nil {
		h.begun.Store(true)
		return newTransport(h.done, a, s), nil
	}
	if s != nil {
		err = errors.Join(err, s.release())
	}
	if errors.Is(err, elastic.ErrNoView) {
		a.end(line.Close) // the others shall find out by themselves, from all that was written
	} else {
		a.end(line.Reset)
	}
	return nil, err
}

// note writes down on the links whether memory is shared, and why not where it could be, or
// why calls copy vectors though it is. It returns the first rank with which it is not though
// one of the two insists; -1 if there is none.
func (h *Host) note(a *attempt, s *sharing, why error) int {
	mine, lone := h.offer(direct.Ticket{}), -1
	for rank := range a.streams {
		l := &a.streams[rank][dataStream]
		if rank == a.self {
			continue
		}
		if s != nil && slices.Contains(s.ranks, rank) {
			l.path.Kind, l.path.Why = "shm", s.copied(rank)
			continue
		}
		if sameSite(mine, &l.peer) && l.path.Why == "" && why != nil {
			l.path.Why = why.Error()
		}
		if lone < 0 && (h.path == shmPath || l.peer.path == shmPath) {
			lone = rank
		}
	}
	return lone
}

// unshared returns the error of an attempt in which no memory is shared with a rank though
// it or this one wants nothing else, because of why, if that is known. Nor will there be
// any in the next view, unless what happened was passing, or the other is a newcomer to a
// session that this host has been in: then it is that one which has to go.
func (h *Host) unshared(a *attempt, rank int, why error) error {
	apart := h.apart(a, rank)
	if why == nil {
		why = apart
	}
	err := fmt.Errorf("no shared memory: %w (the transport auto does without where it must)", why)
	switch {
	case errors.As(why, new(passing)):
		return err
	case apart != nil && h.begun.Load():
		return a.lost(rank, err)
	}
	return fmt.Errorf("%w: %w", elastic.ErrNoView, err)
}

// apart returns why two ranks cannot share memory whatever happens, or nil.
func (h *Host) apart(a *attempt, rank int) error {
	mine, theirs := h.offer(direct.Ticket{}), &a.streams[rank][dataStream].peer
	for _, o := range []*offer{mine, theirs} {
		if o.path != autoPath && o.path != shmPath {
			who := a.self
			if o == theirs {
				who = rank
			}
			return fmt.Errorf("rank %d wants the transport %s", who, pathNames()[o.path])
		}
	}
	if mine.Site != theirs.Site || mine.Site == [32]byte{} {
		return fmt.Errorf("ranks %d and %d are not on one host", min(a.self, rank), max(a.self, rank))
	}
	return nil
}
