package elastic

import (
	"errors"
	"fmt"
)

// ErrFinished: the job was finished before this peer was let in.
var ErrFinished = fmt.Errorf("%w: the job has finished", ErrNoView)

// anewError ends the waiting of a peer that wants to join: the launcher knows that no
// member lives, and names those that form the first view anew.
type anewError struct{ first []Member }

// Error implements error.
func (anewError) Error() string { return "no member of the job is left" }

// Begin tells a peer that waits to join that no member lives, and who forms the first view
// anew, this peer among them. Only a launcher that has started everybody can know that. A
// peer that does not wait ignores it. It does not block.
func (g *Group) Begin(first []Member) { g.tell(anewError{first}) }

// Finished tells a peer that waits to join that the job is finished: Next returns
// ErrFinished. It does not block.
func (g *Group) Finished() { g.tell(ErrFinished) }

// tell ends the waiting for members with err; the latest one counts.
func (g *Group) tell(err error) {
	select {
	case <-g.told:
	default:
	}
	select {
	case g.told <- err:
	default:
	}
}

// begin enters the first view that the launcher has named, with the state that this peer
// holds, be it that of a checkpoint or what it has copied of the members before. It
// returns err where that is no such order.
func (g *Group) begin(err error) error {
	var order anewError
	if !errors.As(err, &order) {
		return err
	}
	if g.state != nil && g.torn {
		return fmt.Errorf("%w: no member is left, and the state that this peer was copying is incomplete", ErrNoView)
	}
	old := g.current()
	old.stop()
	k, err := newKeeper(&g.cfg, old.ep, order.first, g.emitter(old.ep.Self))
	if err != nil {
		return fmt.Errorf("%w: begin anew: %w", ErrNoView, err)
	}
	if !g.replace(k, nil) {
		k.stop()
		return fmt.Errorf("%w: closed", ErrNoView)
	}
	g.void, g.fresh, g.levels = false, false, false
	if g.state != nil {
		g.donor.Reset(max(g.state.Step(), 0))
	}
	return nil
}
