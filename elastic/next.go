package elastic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/pause"
)

// Next waits for the first view after epoch (0 at the start) and connects its members. Members that
// lag behind receive the steps that they lack. When Next returns a session, all members of the
// session have committed the same steps. If members die meanwhile, Next continues with later views.
// For a newcomer the first Next copies the state and gets the newcomer admitted. Next uses the
// State only in the caller's goroutine.
//
// Errors wrap ErrNoView, usually with one of the more specific errors, or are the cause of ctx.
func (l Sessions) Next(ctx context.Context, epoch uint64) (_ *Session, err error) {
	switch {
	case !l.g.made():
		return nil, fmt.Errorf("elastic: next view: %w", errNoGroup)
	case ctx == nil:
		return nil, fmt.Errorf("elastic: next view: %w", errNoContext)
	}
	l.g.register(func(t *terms) { t.begun = true })
	defer func() {
		d := l.g.current()
		d.loop.do(d.entry.end)
		switch {
		case errors.Is(err, collective.ErrMistake):
			d.mistaken(ctx, err)
		case isRefusal(d, err):
			l.Emit(0, 0, event.Refused{Reason: errors.Unwrap(err).Error()})
		}
	}()
	for {
		s, err := l.g.next(ctx, epoch)
		if errors.Is(err, ErrLeft) {
			announceLeave(l.g, leftAsked)
			l.g.current().settle()
		}
		if err != nil {
			return nil, fmt.Errorf("elastic: next view after epoch %d: %w", epoch, err)
		}
		if err = l.g.calibrate(ctx, s); err == nil {
			err = l.g.level(ctx, s, &l.g.loops)
		}
		if err == nil {
			return s, nil
		}
		if errors.Is(err, ErrNoView) {
			return nil, fmt.Errorf("elastic: %w", err)
		}
		if !errors.Is(err, collective.ErrRevoked) {
			return nil, fmt.Errorf("elastic: synchronize the states of the members of %v: %w", s.View, err)
		}
		epoch = s.View.Epoch
	}
}

// isRefusal reports whether err says that a newcomer is not let in, for another reason than its own wish.
func isRefusal(d *driver, err error) bool {
	s, _ := d.status.now()
	return errors.Is(err, ErrRefused) || s.phase == outside && errors.Is(err, ErrNoView) && !errors.Is(err, ErrLeft) && !errors.Is(err, ErrFinished)
}

// calibrate measures the costs of calls in a new session, unless all members have the costs of the
// same earlier session.
func (n *sessions) calibrate(ctx context.Context, s *Session) error {
	if s.calibrated {
		return nil
	}
	if err := s.Comm.Calibrate(ctx); err != nil {
		return err
	}
	s.calibrated, n.cost = true, s.Comm.Cost()
	return nil
}

// next returns the session of a view after epoch. Its members may not be level yet. A view whose
// session cannot be entered is skipped: the driver then asks for another view, and next waits for
// it. So a member that dies during the entry costs one more view and no error.
func (g *Group) next(ctx context.Context, epoch uint64) (*Session, error) {
	if s := g.pending; s != nil && epoch < s.View.Epoch {
		g.pending = nil
		return s, nil
	}
	// A session that is newer than epoch and not revoked is still valid.
	if s := g.using(); s != nil && epoch < s.View.Epoch && s.Comm.Err() == nil {
		return s, nil
	}
	if err := g.left(epoch); err != nil {
		return nil, err
	}
	for {
		d, v, err := g.await(ctx, epoch)
		if err != nil {
			return nil, err
		}
		s, err := g.enter(ctx, d, v)
		if err == nil {
			g.use(s)
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if errors.Is(err, ErrNoView) {
			return nil, err
		}
		g.failed(ctx, d, v, err)
		epoch = v.Epoch
	}
}

// left retires the session in use. If that session broke, left requests another one from the
// driver, except after a mistake of the program, which would recur in every session.
func (n *sessions) left(epoch uint64) error {
	s := n.using()
	if s == nil {
		return nil
	}
	n.use(nil)
	cause := s.Comm.Err()
	n.retire(s, nil)
	// A mistake of the program would break every further session in the same way.
	if errors.Is(cause, collective.ErrMistake) {
		return fmt.Errorf("%w: %w", ErrNoView, cause)
	}
	if cause != nil && s.View.Epoch >= epoch {
		n.failed(context.Background(), s.driver, s.View, cause)
	}
	return nil
}

// failed reports to the driver that the session of a view broke or could not be entered, and the
// death of a member that broke it, if that is certain. From the fourth consecutive failure on,
// failed first waits, with exponential backoff up to a second, because a new view at once has not
// helped.
func (n *sessions) failed(ctx context.Context, d *driver, v View, cause error) {
	blamed := -1
	var p *collective.PeerError
	if errors.As(cause, &p) && p.Rank < len(v.Members) {
		blamed = p.Rank
	}
	if blamed >= 0 && p.Ended {
		d.dead(v.Members[blamed].ID)
	}
	if n.broke++; n.broke > 3 {
		ctx, cancel := d.status.while(ctx, func(s status) bool { return s.view.Epoch == v.Epoch && s.phase == inside })
		_ = pause.For(ctx, min(tickPeriod<<min(n.broke-4, 10), time.Second)) // a new view ends the pause
		cancel()
	}
	d.broken(v, blamed)
}

// await returns the first view after epoch in which the group can go on, and the driver of the
// identity in it. While it waits it also joins, reopens a fenced identity, and gives newcomers the
// state. The order of the cases matters: the end of this peer's membership is checked before a lack
// of members, because await would otherwise wait for members until RejoinTimeout.
func (g *Group) await(ctx context.Context, epoch uint64) (*driver, View, error) {
	w := waiting{group: g}
	defer w.end()
	g.rest(true)
	defer g.rest(false)
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
		case <-g.resting():
			if err := g.offerStep(); err != nil {
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
		g.forget()
		return epoch, nil
	}
	return 0, g.begin(err)
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
	if w.group.onShort != nil && !w.group.torn {
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
	return w.group.leaves
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
