package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
)

// connect makes the transport of a view. It gathers two streams per planned pair, by dialling peers
// and by waiting for the dials of peers, until all are there or one cannot be made. There is no
// barrier at the end: a member whose attempt fails resets its streams, which revokes the view at
// the members that have begun it.
func (m *Mesh) connect(ctx context.Context, v elastic.View, self int) (*Transport, error) {
	// The caller derives self from the view. With a wrong self the hellos would state another rank.
	if self < 0 || self >= len(v.Members) || v.Members[self].ID != m.id {
		return nil, fmt.Errorf("%w: %s does not have this rank", collective.ErrArgument, m.id.Short())
	}
	if err := m.Introduce(v.Members); err != nil {
		return nil, err
	}
	viewer, _ := m.carrier.(Viewer)
	if viewer != nil {
		if err := viewer.Entering(v); err != nil {
			return nil, err
		}
	}
	// The inner ctx ends with the dials. The ranks of a host agree on shared memory after that, so
	// start needs the outer ctx.
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := newAttempt(ctx, m.binder, v, self, m.cfg.Plan(v, self))
	if err := m.views.enter(a); err != nil {
		return nil, err
	}
	// Probes run beside the dials, because a higher rank that has died never dials this rank.
	m.probeMissing(a)
	a.dialAll()
	late := time.AfterFunc(bindTime, a.dialLate)
	defer late.Stop()
	select {
	case <-a.done:
	case <-ctx.Done():
		a.fail(a.blame(context.Cause(ctx)))
	case <-m.life.ctx.Done():
		a.fail(errClosed())
	}
	// Dials that still run are redundant: all planned streams are there, or the attempt has failed.
	cancel() // ends the dials
	for _, l := range a.requested {
		m.lanes.withdraw(a, l, true)
	}
	a.dials.Wait()
	if a.err != nil {
		m.views.forget(a)
		a.lazy.abandon(a.err)
		return nil, a.err
	}
	m.views.entered(a)
	m.events.reached(v)
	// Lanes with former members are of no use any more.
	m.lanes.retain(v)
	if viewer != nil {
		viewer.Entered(v)
	}
	return m.start(outer, a)
}

// start makes the transport of an attempt that has all planned streams.
func (m *Mesh) start(ctx context.Context, a *attempt) (*Transport, error) {
	s, err := m.memory.enter(ctx, a)
	if err == nil {
		return newTransport(a, s), nil
	}
	m.views.forget(a)
	a.lazy.abandon(err)
	// No later view of these members can succeed (hostMemory.unshared).
	if errors.Is(err, elastic.ErrNoView) {
		a.end(Stream.Close) // not Reset: the peers read the reason in bytes that were written before
	} else {
		a.end(Stream.Reset)
	}
	return nil, err
}

// maxDials is how many streams an attempt opens at the same time.
const maxDials = 16

// bindTime is how long an attempt waits for lanes that are still in use in an earlier view, before
// it opens new lanes in their place.
const bindTime = 100 * time.Millisecond

// dialAll binds the planned lanes with all lower ranks to the view, and opens the lanes that are
// missing. Higher ranks do the same for their lanes with this rank.
func (a *attempt) dialAll() {
	for back := range a.self {
		rank := a.self - 1 - back // from the nearest rank down: otherwise all ranks would dial rank 0 first
		if !a.planned[rank] {
			continue
		}
		a.dials.Go(func() {
			for number := range streamsPerPair {
				l, _, idle := a.binder.lanes.requestBind(a, rank, number)
				switch {
				case l == nil:
					a.dialOne(rank, number)
				case !a.expect(l):
					a.binder.lanes.withdraw(a, l, true)
				case idle:
					l.sayHello(a.hello)
				case a.isLate():
					a.replace(l)
				}
			}
		})
	}
}

// expect notes that a lane is to be bound to the view. It returns false if the attempt is over.
func (a *attempt) expect(l *lane) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return false
	}
	a.requested = append(a.requested, l)
	return true
}

// dialLate opens streams in place of the lanes that are still in use after bindTime.
func (a *attempt) dialLate() {
	a.mu.Lock()
	a.late = true
	asked := slices.Clone(a.requested)
	a.mu.Unlock()
	for _, l := range asked {
		a.replace(l)
	}
}

// isLate reports whether bindTime is over.
func (a *attempt) isLate() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.late
}

// replace opens a stream in place of a lane that is still in use.
func (a *attempt) replace(l *lane) {
	if a.binder.lanes.withdraw(a, l, false) {
		a.dialOne(a.view.Rank(l.peer), l.number)
	}
}

// dialOne opens a stream in a goroutine, unless the attempt is over.
func (a *attempt) dialOne(rank, number int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return
	}
	a.dials.Go(func() {
		select {
		case a.dialSlots <- struct{}{}:
		case <-a.ctx.Done():
			return
		}
		defer func() { <-a.dialSlots }()
		if err := a.binder.dial(a.ctx, a, rank, number); err != nil && a.ctx.Err() == nil && !a.binder.life.isOver() {
			a.fail(a.blameFor(rank, err))
		}
	})
}
