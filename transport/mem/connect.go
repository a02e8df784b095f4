package mem

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
)

// meeting is a view whose members have not all come yet. It is removed from the
// network, by whom it is decided, before over is closed.
type meeting struct {
	view elastic.View
	ends []*Transport
	here []bool        // by rank
	over chan struct{} // closed when all are here, or err is set
	err  error
}

// Connect implements elastic.Network.
func (m *Member) Connect(ctx context.Context, v elastic.View, self int) (transport.Transport, error) {
	t, err := m.connect(ctx, v, self)
	if err != nil {
		return nil, fmt.Errorf("mem: connect rank %d of %v: %w", self, v, err)
	}
	return t, nil
}

// connect waits at the meeting for v until that is decided, one way or the other. Whoever
// finds it decided in favour enters, even if its own ctx has ended meanwhile: the
// others have entered and would wait for it.
func (m *Member) connect(ctx context.Context, v elastic.View, self int) (*Transport, error) {
	if self < 0 || self >= len(v.Members) || v.Members[self].ID != m.id {
		return nil, fmt.Errorf("%w: %s is not that rank", collective.ErrArgument, m.id.Short())
	}
	e, complete, err := m.network.arrive(m, v, self)
	if err != nil {
		return nil, err
	}
	if complete {
		close(e.over)
	}
	select {
	case <-e.over:
	case <-ctx.Done():
		if err := m.network.cancel(ctx, e, self); err != nil {
			return nil, err
		}
		<-e.over // it was decided before
	case <-m.gone:
		<-e.over
	}
	if e.err != nil {
		return nil, e.err
	}
	return e.ends[self], nil
}

// arrive notes that m is ready for v, and reports whether it was the last.
func (w *Network) arrive(m *Member, v elastic.View, self int) (e *meeting, complete bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.left != nil {
		return nil, false, fmt.Errorf("%w: %w", transport.ErrClosed, m.left)
	}
	for rank, member := range v.Members {
		if other := w.members[member.ID]; other != nil && other.left != nil {
			return nil, false, lost(v, rank, other.left)
		}
	}
	hash := v.Hash()
	e = w.meetings[hash]
	if e == nil {
		n := len(v.Members)
		e = &meeting{view: v, ends: New(n), here: make([]bool, n), over: make(chan struct{})}
		w.meetings[hash] = e
	}
	if e.here[self] {
		return nil, false, errors.New("already connecting")
	}
	e.here[self] = true
	if slices.Contains(e.here, false) {
		return e, false, nil
	}
	delete(w.meetings, hash)
	for rank, member := range v.Members {
		w.members[member.ID].ends = append(w.members[member.ID].ends, e.ends[rank])
	}
	return e, true, nil
}

// cancel undoes arrive. It returns nil if the meeting was decided before.
func (w *Network) cancel(ctx context.Context, e *meeting, self int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.meetings[e.view.Hash()] != e {
		return nil
	}
	e.here[self] = false
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		for rank, here := range e.here {
			if !here && rank != self {
				return fmt.Errorf("%w: %w", lost(e.view, rank, errors.New("did not connect in time")), cause)
			}
		}
	}
	return cause
}

// abandon ends the meetings to which id belongs, and returns them to be told.
func (w *Network) abandon(id elastic.ID, why error) []*meeting {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ended []*meeting
	for hash, e := range w.meetings {
		rank := e.view.Rank(id)
		if rank < 0 {
			continue
		}
		e.err = lost(e.view, rank, why)
		delete(w.meetings, hash)
		ended = append(ended, e)
	}
	return ended
}

// lost returns the loss of a rank of v.
func lost(v elastic.View, rank int, why error) error {
	return &transport.PeerError{Rank: rank, Peer: v.Members[rank].ID.Short(), Cause: why.Error()}
}
