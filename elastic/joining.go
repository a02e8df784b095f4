package elastic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/event"
)

// joiner lets a newcomer join a running job. One of its goroutines repeatedly makes the offer to
// the present members (lookOut). Meanwhile the goroutine of Next copies the state.
type joiner struct {
	group      *Group
	d          *driver
	accepted   chan struct{} // closed when the first member has accepted the offer
	introduced chan struct{} // capacity 1: a reply has introduced another newcomer

	mu    sync.Mutex
	reach reach // the members and the newcomers that this peer connects with
	// answerTime is a decaying maximum of the times that connected members take to answer an offer.
	// Each answer replaces it by the larger one of the answer's time and half the old value.
	answerTime time.Duration
	epoch      uint64        // latest epoch in a reply
	gone       chan struct{} // closed when a member is gone, and then replaced
	shortest   time.Duration // shortest round trip so far; 0 before the first
	admitted   *Candidate    // the measurements with which a member admitted this peer; nil if none has
	first      sync.Once     // closes accepted once
}

// newJoiner returns a joiner for the identity of d.
func newJoiner(g *Group, d *driver) *joiner {
	return &joiner{group: g, d: d, accepted: make(chan struct{}), introduced: make(chan struct{}, 1), gone: make(chan struct{}),
		reach: newReach(d.ep.Self, d.ep.Relay)}
}

// join joins the job: it makes the offer, copies the state and requests admission. It returns nil
// when this peer is in a view.
func (j *joiner) join(ctx context.Context) error {
	begun := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	var looking sync.WaitGroup
	// Defers run in reverse order: cancel ends the goroutines for which Wait waits.
	defer looking.Wait()
	defer cancel(nil)
	// The error of lookOut becomes the cause of ctx, and so the error of join.
	looking.Go(func() { cancel(j.lookOut(ctx)) })
	looking.Go(func() { j.meet(ctx) })
	looking.Go(func() {
		select {
		case err := <-j.group.reason:
			cancel(err)
		case <-ctx.Done():
		}
	})
	select {
	case <-j.accepted:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// The copy ends as soon as this peer is not outside any more: it is in a view, fenced or
	// closed.
	inView, stop := j.d.status.while(ctx, func(s status) bool { return s.phase == outside })
	defer stop()
	moved, err := j.apply(inView)
	// An error of apply after the end of inView is only a consequence of that end.
	if err != nil && inView.Err() == nil {
		return err
	}
	<-inView.Done()
	if s, _ := j.d.status.now(); s.phase != outside {
		j.d.emit(s.view.Epoch, event.Join{Who: j.d.ep.Self.ID.Short(), Reason: "level", Bytes: moved, MS: milliseconds(time.Since(begun))})
		return nil
	}
	return context.Cause(ctx)
}

// reopen replaces a fenced identity by a fresh one, which has to join and whose State is void.
func (g *Group) reopen(ctx context.Context, s status) error {
	if g.cfg.Reopen == nil {
		return fmt.Errorf("%w: %s", ErrFenced, s.why)
	}
	// The last members are read before the driver stops: the new identity makes its offer to
	// them.
	old := g.current()
	members := old.lastMembers()
	g.retire(g.using(), nil)
	g.use(nil)
	g.retiring.Wait() // closing sessions in good order needs the old endpoint
	old.stop()
	if err := old.ep.Close(); err != nil {
		return fmt.Errorf("%w: close the old identity: %w", ErrFenced, err)
	}
	ep, err := g.cfg.Reopen(ctx)
	if err != nil {
		return fmt.Errorf("%w: open a new identity: %w", ErrFenced, err)
	}
	d, err := newDriver(&g.cfg, ep, nil, emitter(g.cfg.Sink, ep.Self))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFenced, err)
	}
	if !g.replace(d, members) {
		d.stop()
		return errors.Join(fmt.Errorf("%w: closed", ErrNoView), ep.Close())
	}
	// From now on other peers may send requests to the new identity. It answers that it is no
	// member.
	ep.Network.Serve(g.requests.answer)
	g.fresh = true
	// The job has gone on without this peer, so this peer's state is of an old step.
	if g.state != nil {
		g.void = true
		g.donor.Reset(0)
	}
	return nil
}

// lastMembers returns the other members of the last view that this identity knew. With Config.Any
// it adds some members that were lost before: if this peer's branch of a divided group is given up,
// only the members of the other branch remain.
func (d *driver) lastMembers() []Member {
	s, _ := d.status.now()
	members := without(s.view.Members, d.ep.Self.ID)
	if d.cfg.Any {
		members = append(members, s.former...)
	}
	return members
}

// without returns a copy of members without the member id.
func without(members []Member, id ID) []Member {
	return slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.ID == id })
}
