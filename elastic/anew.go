package elastic

import (
	"errors"
	"fmt"
	"sync"
)

// ErrFinished means that the job had finished before this peer was admitted.
var ErrFinished = fmt.Errorf("%w: the job has finished", ErrNoView)

// anewError ends a newcomer's wait for members. The launcher sends it when it has observed that no
// member lives. It names the members of a new first view.
type anewError struct{ first []Member }

// Error implements error.
func (anewError) Error() string { return "no member of the job is left" }

// orders holds the requests that a program or its launcher has made to a group. It is safe for
// concurrent use.
type orders struct {
	leaves  chan struct{} // closed by leave
	leaving sync.Once
	reason  chan error // the latest reason why there is no member to join
}

// newOrders returns orders without any order.
func newOrders() orders {
	return orders{leaves: make(chan struct{}), reason: make(chan error, 1)}
}

// Begin tells a newcomer that no member lives, and which peers form a new first view; this peer is
// one of them. Only a launcher that has started all peers can call Begin, because only such a
// launcher observes all deaths. A peer that does not wait to join ignores the call. Begin does not
// block.
func (o *orders) Begin(first []Member) { o.endWait(anewError{first}) }

// Finished tells a newcomer that the job has finished: Next returns ErrFinished. Finished does not
// block.
func (o *orders) Finished() { o.endWait(ErrFinished) }

// leave orders the group to leave.
func (o *orders) leave() { o.leaving.Do(func() { close(o.leaves) }) }

// endWait ends a newcomer's wait for members with err. It replaces an earlier error that the
// newcomer has not read yet.
func (o *orders) endWait(err error) {
	select {
	case <-o.reason:
	default:
	}
	select {
	case o.reason <- err:
	default:
	}
}

// begin enters the first view that the launcher has named, with the state that this peer holds: the
// state of a checkpoint, or a complete copy from earlier members. If err is no anewError, begin
// returns it unchanged.
func (g *Group) begin(err error) error {
	var order anewError
	if !errors.As(err, &order) {
		return err
	}
	if g.state != nil && g.torn {
		return fmt.Errorf("%w: no member is left, and this peer has only a part of the state: start the job again, from a checkpoint if there is one", ErrNoView)
	}
	// The driver of the old membership ends before the new one begins, as both use one network.
	old := g.current()
	old.stop()
	d, err := newDriver(&g.cfg, old.ep, order.first, emitter(g.cfg.Sink, old.ep.Self))
	if err != nil {
		return fmt.Errorf("%w: begin anew: %w", ErrNoView, err)
	}
	if !g.replace(d, nil) {
		d.stop()
		return fmt.Errorf("%w: closed", ErrNoView)
	}
	g.beginAnew()
	return nil
}
