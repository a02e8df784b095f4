package elastic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/elrun/elrun/event"
)

// joiner is a peer on its way into a running job. A goroutine of its own makes its offer
// to all members, again and again, as they change; meanwhile the caller of Next copies
// the state.
type joiner struct {
	group    *Group
	k        *keeper
	accepted chan struct{} // closed when the first member has accepted the offer

	mu       sync.Mutex
	members  []Member      // of the view, as was last heard
	epoch    uint64        // the latest heard of
	gone     chan struct{} // closed when a member is gone, and replaced
	shortest time.Duration // that an answer took; 0 before the first
	cutOff   map[ID]bool   // by member that was made an offer: whether the last one did not get there
	admitted *Candidate    // this peer when it was let in; nil if it is not
	first    sync.Once     // for accepted
}

// joinIn gets this peer into the job: it makes its offer, copies the state and asks to
// be let in. It returns when a view has it.
func (g *Group) joinIn(ctx context.Context, k *keeper) error {
	begun := time.Now()
	j := &joiner{group: g, k: k, accepted: make(chan struct{}), gone: make(chan struct{}), cutOff: make(map[ID]bool)}
	ctx, cancel := context.WithCancelCause(ctx)
	var looking sync.WaitGroup
	defer looking.Wait()
	defer cancel(nil)
	looking.Go(func() { cancel(j.lookOut(ctx)) })
	looking.Go(func() {
		select {
		case err := <-g.told:
			cancel(err)
		case <-ctx.Done():
		}
	})
	select {
	case <-j.accepted:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	inView, stop := k.while(ctx, func(s standing) bool { return s.phase == outside })
	defer stop()
	moved, err := j.apply(inView)
	if err != nil && inView.Err() == nil {
		return err
	}
	<-inView.Done()
	if s, _ := k.now(); s.phase != outside {
		k.emit(s.view.Epoch, event.Join{Who: k.ep.Self.ID.Short(), Reason: "level", Bytes: moved, MS: milliseconds(time.Since(begun))})
		return nil
	}
	return context.Cause(ctx)
}

const (
	// offerPatience is how long a member may take to answer an offer.
	offerPatience = 2 * time.Second
	// offerPause is the time between two rounds of offers until one was accepted, and
	// offerPeriod that afterwards.
	offerPause  = 100 * time.Millisecond
	offerPeriod = time.Second
	// desertedAfter is how long nobody may listen at any of the addresses before a peer
	// that wants to join believes that the job has ended.
	desertedAfter = 10 * time.Second
	// endedAfter is that time after a member has said that the job is at its end.
	endedAfter = time.Second
)

// lookOut makes the offer to all members that it hears of, until ctx ends. It returns
// why this peer cannot join.
func (j *joiner) lookOut(ctx context.Context) error {
	g := j.group
	begun, pause := time.Now(), offerPause
	var answered time.Time // when a member last answered
	seen := begun          // when one was last not certainly gone
	for {
		round, err := j.offerToAll(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrRefused):
			return err
		case round.answered:
			answered, seen = time.Now(), time.Now()
		case round.seen:
			seen = time.Now()
		}
		if round.accepted {
			pause = offerPeriod
		}
		patience := desertedAfter
		if s, _ := j.k.now(); s.ended {
			patience = endedAfter
		}
		switch {
		case time.Since(seen) > patience:
			return fmt.Errorf("%w: the job has ended: %w", ErrNoView, err)
		case time.Since(begun) > g.cfg.RejoinTimeout && time.Since(answered) > g.cfg.RejoinTimeout:
			return fmt.Errorf("%w: no member has answered for %v: %w", ErrQuorum, g.cfg.RejoinTimeout, err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-g.leaves:
			timer.Stop()
			return ErrLeft
		case <-j.k.ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: closed", ErrNoView)
		}
		timer.Stop()
	}
}

// reopen replaces an identity that was fenced by a fresh one, which has to join. What
// it held is void.
func (g *Group) reopen(ctx context.Context, s standing) error {
	if g.cfg.Reopen == nil {
		return fmt.Errorf("%w: %s", ErrFenced, s.why)
	}
	old := g.current()
	members := old.lastMembers()
	g.retire(g.using(), nil)
	g.use(nil)
	g.retiring.Wait() // sessions need the old endpoint to end in good order
	old.stop()
	if err := old.ep.Close(); err != nil {
		return fmt.Errorf("%w: close the old identity: %w", ErrFenced, err)
	}
	ep, err := g.cfg.Reopen(ctx)
	if err != nil {
		return fmt.Errorf("%w: open a new identity: %w", ErrFenced, err)
	}
	k, err := newKeeper(&g.cfg, ep, nil, g.emitter(ep.Self))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFenced, err)
	}
	if !g.replace(k, members) {
		k.stop()
		return errors.Join(fmt.Errorf("%w: closed", ErrNoView), ep.Close())
	}
	ep.Network.Serve(g.answer)
	g.fresh = true
	if g.state != nil {
		g.void = true
		g.donor.Reset(0)
	}
	return nil
}

// replace makes k the keeper of this peer, which may ask members besides its contacts.
// It reports false if the group was closed.
func (g *Group) replace(k *keeper, members []Member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.keeper = k
	g.met = members
	return true
}

// lastMembers returns the members of the last view that this identity knew, but for
// itself. Where any survivors may go on it adds some that were lost before: if this
// peer's part of a divided group is given up, only those of the other part remain.
func (k *keeper) lastMembers() []Member {
	s, _ := k.now()
	members := without(s.view.Members, k.ep.Self.ID)
	if k.cfg.Any {
		members = append(members, s.former...)
	}
	return members
}
