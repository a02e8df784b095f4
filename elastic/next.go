package elastic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/event"
)

// Next waits for the first view after epoch (0 at the start) and connects its members. Members that
// lag behind receive the steps that they lack. When Next returns a session, all members of the
// session have committed the same steps. If members die meanwhile, Next continues with later views.
// For a newcomer the first Next copies the state and gets the newcomer admitted. Next uses the
// State only in the caller's goroutine.
//
// Errors wrap ErrNoView, usually with one of the more specific errors, or are the cause of ctx.
func (s Sessions) Next(ctx context.Context, epoch uint64) (_ *Session, err error) {
	switch {
	case !s.g.made():
		return nil, fmt.Errorf("elastic: next view: %w", errNoGroup)
	case ctx == nil:
		return nil, fmt.Errorf("elastic: next view: %w", errNoContext)
	}
	s.g.held.register(func(t *terms) { t.begun = true })
	defer func() {
		d := s.g.current()
		d.loop.do(d.endEntry)
		switch {
		case errors.Is(err, collective.ErrMistake):
			d.mistaken(ctx, err)
		case isRefusal(d, err):
			s.Emit(0, 0, event.Refused{Reason: errors.Unwrap(err).Error()})
		}
	}()
	for {
		session, err := s.g.next(ctx, epoch)
		if errors.Is(err, ErrLeft) {
			announceLeave(s.g, leftAsked)
			s.g.current().settle()
		}
		if err != nil {
			return nil, fmt.Errorf("elastic: next view after epoch %d: %w", epoch, err)
		}
		if err = s.g.sessions.calibrate(ctx, session); err == nil {
			err = s.g.held.synchronize(ctx, session, &s.g.loops)
		}
		if err == nil {
			return session, nil
		}
		if errors.Is(err, ErrNoView) {
			return nil, fmt.Errorf("elastic: %w", err)
		}
		if !errors.Is(err, collective.ErrRevoked) {
			return nil, fmt.Errorf("elastic: synchronize the states of the members of %v: %w", session.View, err)
		}
		epoch = session.View.Epoch
	}
}

// isRefusal reports whether err says that a newcomer is not let in, for another reason than its own wish.
func isRefusal(d *driver, err error) bool {
	s, _ := d.status.now()
	return errors.Is(err, ErrRefused) || s.phase == outside && errors.Is(err, ErrNoView) && !errors.Is(err, ErrLeft) && !errors.Is(err, ErrFinished)
}

// next returns the session of a view after epoch. Its members may not be level yet. A view whose
// session cannot be entered is skipped: the driver then asks for another view, and next waits for
// it. So a member that dies during the entry costs one more view and no error.
func (g *Group) next(ctx context.Context, epoch uint64) (*Session, error) {
	if s := g.sessions.pending; s != nil && epoch < s.View.Epoch {
		g.sessions.pending = nil
		return s, nil
	}
	// A session that is newer than epoch and not revoked is still valid.
	if s := g.sessions.using(); s != nil && epoch < s.View.Epoch && s.Comm.Err() == nil {
		return s, nil
	}
	if err := g.sessions.left(epoch); err != nil {
		return nil, err
	}
	for {
		d, v, err := g.await(ctx, epoch)
		if err != nil {
			return nil, err
		}
		s, err := g.enter(ctx, d, v)
		if err == nil {
			g.sessions.use(s)
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if errors.Is(err, ErrNoView) {
			return nil, err
		}
		g.sessions.failed(ctx, d, v, err)
		epoch = v.Epoch
	}
}

// enter connects the members of v and makes the session. It gives up if a later view arrives, or
// the group becomes too small.
func (g *Group) enter(ctx context.Context, d *driver, v View) (*Session, error) {
	d.report.enter(v.Epoch)
	ctx, cancel := d.status.while(ctx, func(s status) bool {
		return s.view.Epoch == v.Epoch && s.phase == inside && s.gap == nil && s.wrong == nil
	})
	defer cancel()
	rank := v.Rank(d.ep.Self.ID)
	d.loop.do(func() {
		d.endEntry()
		d.entry.begin(v, time.Now())
	})
	t, err := d.ep.Network.Connect(ctx, v, rank)
	d.loop.do(func() { d.entry.connected = true })
	if err != nil {
		return nil, fmt.Errorf("connect %v: %w", v, err)
	}
	s := &Session{View: v, Rank: rank, group: g, driver: d, entered: time.Now()}
	o := g.cfg.Comm
	o.OnStall = func(stall collective.Stall) { d.loop.do(func() { d.reportStall(v, stall) }) }
	o.OnStallOver = func(stall collective.Stall) { d.loop.do(func() { d.reportStallOver(v, stall) }) }
	o.Step = d.report.committed
	o.Record = g.calls.Session(v.Epoch, rank, short(v.Members))
	o.OnBegin, o.OnError, o.Sites = s.callBegins, s.callFailed, v.Sites()
	if o.Cost == (collective.Cost{}) {
		o.Cost = g.sessions.cost
	}
	s.Comm, err = collective.New(t, rank, len(v.Members), o)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	before := d.session.Load()
	d.enter(s)
	if now, _ := d.status.now(); now.view.Epoch != v.Epoch || now.phase != inside || now.gap != nil || now.wrong != nil {
		// Members that received the later view before they connected have not entered this session,
		// and the others would wait for them.
		s.Comm.Revoke(fmt.Errorf("epoch %d ended before this peer entered it", v.Epoch))
	}
	if p, ok := t.(Pather); ok {
		s.reportPaths(before, p)
	}
	return s, nil
}

// await returns the first view after epoch in which the group can go on, and the driver of the
// identity in it. While it waits it also joins, reopens a fenced identity, and gives newcomers the
// state. The order of the cases matters: the end of this peer's membership is checked before a lack
// of members, because await would otherwise wait for members until RejoinTimeout.
func (g *Group) await(ctx context.Context, epoch uint64) (*driver, View, error) {
	w := waiting{group: g}
	defer w.end()
	g.held.rest(true)
	defer g.held.rest(false)
	for {
		d := g.current()
		s, changed := d.status.now()
		switch {
		case s.wrong != nil:
			return nil, View{}, s.wrong
		case s.phase == closed:
			return nil, View{}, fmt.Errorf("%w: closed", ErrNoView)
		case s.phase == left && len(s.view.Members) == 1:
			return nil, View{}, ErrLast
		case s.phase == left:
			return nil, View{}, ErrLeft
		case s.phase == kicked:
			return nil, View{}, ErrKicked
		case s.phase == fenced:
			if err := g.reopen(ctx, s); err != nil {
				return nil, View{}, err
			}
			continue
		case s.phase == outside:
			var err error
			if epoch, err = g.joinOrBegin(ctx, d, epoch); err != nil {
				return nil, View{}, err
			}
			continue
		case s.gap != nil:
			w.begin(d, *s.gap)
		case len(s.view.Members) < g.cfg.MinPeers:
			w.begin(d, quorumGap{len(s.view.Members), g.cfg.MinPeers})
		default:
			w.end()
			if s.view.Epoch > epoch {
				return d, s.view, nil
			}
		}
		select {
		case <-changed:
		case <-w.leaves():
			return nil, View{}, ErrLeft
		case <-w.long():
			w.announce()
		case <-g.held.resting():
			if err := g.held.offerStep(); err != nil {
				return nil, View{}, err
			}
		case <-w.timeout():
			return nil, View{}, w.giveUp()
		case <-ctx.Done():
			return nil, View{}, context.Cause(ctx)
		}
	}
}

// joinOrBegin lets this peer join, or begin anew if no member lives. It returns the epoch after
// which the next view is wanted; 0 after a new beginning.
func (g *Group) joinOrBegin(ctx context.Context, d *driver, epoch uint64) (uint64, error) {
	err := newJoiner(g, d).join(ctx)
	if err == nil {
		g.orders.forget()
		return epoch, nil
	}
	return 0, g.begin(err)
}

// begin enters the first view that the launcher has named, with the state that this peer holds: the
// state of a checkpoint, or a complete copy from earlier members. If err is no anewError, begin
// returns it unchanged.
func (g *Group) begin(err error) error {
	var order anewError
	if !errors.As(err, &order) {
		return err
	}
	if g.held.state != nil && g.held.torn {
		return fmt.Errorf("%w: no member is left, and this peer has only a part of the state: start the job again, from a checkpoint if there is one", ErrNoView)
	}
	// The driver of the old membership ends before the new one begins, as both use one network.
	old := g.current()
	old.stop()
	d, err := newDriver(&g.cfg, old.ep, order.first, emitter(g.cfg.Sink, old.ep.Self))
	if err != nil {
		return fmt.Errorf("%w: begin anew: %w", ErrNoView, err)
	}
	if !g.identity.replace(d, nil) {
		d.stop()
		return fmt.Errorf("%w: closed", ErrNoView)
	}
	g.held.beginAnew()
	return nil
}

// reopen replaces a fenced identity by a fresh one, which has to join and whose State is void.
func (g *Group) reopen(ctx context.Context, s status) error {
	if g.cfg.Reopen == nil {
		return fmt.Errorf("%w: %s", ErrFenced, s.why)
	}
	// This peer may have decided the view without itself. Its vote ends with its identity, so members that
	// never get the decision would wait for a quorum for ever.
	old := g.current()
	old.settle()
	// The last members are read before the driver stops: the new identity makes its offer to
	// them.
	members := old.lastMembers()
	g.sessions.retire(g.sessions.using(), nil)
	g.sessions.use(nil)
	g.sessions.retiring.Wait() // closing sessions in good order needs the old endpoint
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
	if !g.identity.replace(d, members) {
		d.stop()
		return errors.Join(fmt.Errorf("%w: closed", ErrNoView), ep.Close())
	}
	// From now on other peers may send requests to the new identity. It answers that it is no
	// member.
	ep.Network.Serve(g.requests.answer)
	g.held.fresh = true
	// The job has gone on without this peer, so this peer's state is of an old step.
	if g.held.state != nil {
		g.held.void = true
		g.held.donor.Reset(0)
	}
	return nil
}

// waiting is a period in which a group has too few members.
type waiting struct {
	group *Group
	timer *time.Timer // fires after RejoinTimeout, which ends the wait; nil while there are enough members
	soon  *time.Timer // fires after briefGap, when the wait is announced
	gap   quorumGap   // present and needed members
	epoch uint64      // epoch of the view, for the log
}

// briefGap is the time with too few members before the log reports it. In this time reports of
// certain deaths may arrive, which replace the votes of the dead members.
const briefGap = 500 * time.Millisecond

// begin starts the wait, or updates its numbers of members.
func (w *waiting) begin(d *driver, l quorumGap) {
	now, _ := d.status.now()
	w.gap, w.epoch = l, now.view.Epoch
	if w.timer == nil {
		w.timer, w.soon = time.NewTimer(w.group.cfg.RejoinTimeout), time.NewTimer(briefGap)
	}
}

// long returns a channel that delivers a value when the wait has lasted briefGap; nil while there
// are enough members.
func (w *waiting) long() <-chan time.Time {
	if w.timer == nil {
		return nil
	}
	return w.soon.C
}

// announce reports the wait to the log and to the function of OnQuorumLost.
func (w *waiting) announce() {
	w.group.Sessions().Emit(w.epoch, 0, event.Quorum{State: "waiting", Present: w.gap.present, Needed: w.gap.needed})
	if w.group.onShort != nil && !w.group.held.torn {
		w.group.onShort()
	}
}

// timeout returns a channel that delivers a value after RejoinTimeout; nil while there are enough
// members.
func (w *waiting) timeout() <-chan time.Time {
	if w.timer == nil {
		return nil
	}
	return w.timer.C
}

// leaves returns a channel that is closed when this peer wants to leave. Too few members cannot
// agree to the leave, so this peer may leave without an agreement. With enough members the channel
// is nil.
func (w *waiting) leaves() <-chan struct{} {
	if w.timer == nil {
		return nil
	}
	return w.group.orders.leaves
}

// end ends the wait, as there are enough members.
func (w *waiting) end() {
	if w.timer != nil {
		w.timer.Stop()
		w.soon.Stop()
		w.timer = nil
	}
}

// giveUp logs that the wait has ended without enough members, and returns the error.
func (w *waiting) giveUp() error {
	w.group.Sessions().Emit(w.epoch, 0, event.Quorum{State: "gave-up", Present: w.gap.present, Needed: w.gap.needed})
	return fmt.Errorf("%w: for %v only %d of the %d needed were present; start the job again, from a checkpoint if there is one", ErrQuorum, w.group.cfg.RejoinTimeout, w.gap.present, w.gap.needed)
}
