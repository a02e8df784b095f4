package elastic

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrFinished means that the job had finished before this peer was admitted.
var ErrFinished = fmt.Errorf("%w: the job has finished", ErrNoView)

// Admin is the launcher's side of a Group: it tells what the launcher has observed, and decides who
// may be a member. The program of a peer does not need it. The methods are safe for concurrent use.
type Admin struct{ g *Group }

// Admin returns the launcher's side of the group.
func (g *Group) Admin() Admin { return Admin{g} }

// Begin tells a newcomer that no member lives, and which peers form a new first view; this peer is
// one of them. Only a launcher that has started all peers can call Begin, because only such a
// launcher observes all deaths. A peer that does not wait to join ignores the call. Begin does not
// block.
func (a Admin) Begin(first []Member) {
	if a.g.made() {
		a.g.endWait(anewError{first})
	}
}

// Again takes back the order to join: the launcher has observed that no member lives. It reports
// whether this peer still waits to join, and then lets it enter no view until Begin, Resume, Finished
// or Abort. So the launcher may name the peer in a first view, and no earlier member can have admitted
// it meanwhile. A peer that was put out and is about to get another identity answers with that one.
func (a Admin) Again() bool {
	for a.g.made() {
		d, open := a.g.current(), a.g.isOpen()
		held, ok := ask(&d.loop, func() bool {
			d.status.set(func(s *status) { s.held = s.phase == outside })
			return d.status.held()
		})
		if ok || !open {
			return held
		}
		<-time.After(tickPeriod) // this identity has ended, and another one follows
	}
	return false
}

// Resume lets a newcomer look for members again, after Again. It does not block.
func (a Admin) Resume() {
	if a.g.made() {
		d := a.g.current()
		d.loop.do(func() { d.status.set(func(s *status) { s.held = false }) })
	}
}

// Abort tells a newcomer that there is no job to join, and why: its Next returns an error that wraps
// ErrNoView. Abort does not block.
func (a Admin) Abort(why string) {
	if a.g.made() {
		a.g.endWait(fmt.Errorf("%w: %s", ErrNoView, why))
	}
}

// Finished tells a newcomer that the job has finished: its Next returns ErrFinished. Finished does not
// block.
func (a Admin) Finished() {
	if a.g.made() {
		a.g.endWait(ErrFinished)
	}
}

// Dead reports that the process of a member has ended. The caller must be certain of the end, like
// a launcher that has the wait status of the process, or its word (package launch).
func (a Admin) Dead(id ID) {
	if a.g.made() {
		a.g.current().dead(id)
	}
}

// Heard returns the time since the last message of each member that this peer watches: all members
// in a small group, at most four others in a large one.
func (a Admin) Heard() map[ID]time.Duration {
	if !a.g.made() {
		return make(map[ID]time.Duration)
	}
	d := a.g.current()
	if d == nil {
		return make(map[ID]time.Duration)
	}
	out, ok := ask(&d.loop, func() map[ID]time.Duration {
		out := make(map[ID]time.Duration)
		for _, id := range d.watched() {
			if p := d.peerOf(id); p != nil && p.spoke {
				out[id] = max(0, time.Since(p.last))
			}
		}
		return out
	})
	if !ok {
		return make(map[ID]time.Duration)
	}
	return out
}

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

// forget drops the order that ends a wait, as the wait has ended.
func (o *orders) forget() {
	select {
	case <-o.reason:
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
