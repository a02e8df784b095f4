package elastic

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/event"
)

// ended returns the error of a loop that has ended early without a failure.
func (l *loop) ended(why error) error {
	return fmt.Errorf("elastic: after step %d of %d: %w", max(l.state.Step(), 0), l.until, why)
}

// loop is one call of Steps. The goroutine of the body owns it.
//
//	prepare    check the arguments, register state and settings
//	sessions   the session in use or the next one -> enter -> turn, turn, ... -> the next
//	turn       body -> outcome -> Committed -> boundary
//	boundary   gather the records of all -> compare -> learn speeds -> stop, leave or go on
type loop struct {
	group *Group
	ctx   context.Context // the caller's, for one call of Steps
	state State
	until int64
	// watched is the State that the program has given, if it is Watched; otherwise nil.
	watched Watched
	busy    *time.Timer // ends the time in which the body counts as busy without a report

	stopped bool // all members know that the job ends at the state's present step

	last     time.Time     // end of the previous step in this session, or its entry
	lost     time.Duration // of failed turns at the step lostStep
	lostStep int64
}

// errAgain ends the turns in a session, so that the loop goes on in another session.
var errAgain = errors.New("left for the next session")

// mistake returns an error that ends the loops of all members, because of a mistake of the program.
func (l *loop) mistake(format string, args ...any) error {
	return fmt.Errorf("elastic: %w", mistakef(format, args...))
}

// prepare checks the arguments of Steps and registers the state and the settings on which members
// must agree.
func (l *loop) prepare(options []Option) error {
	g := l.group
	if l.ctx == nil {
		l.ctx = context.Background() // for the end of the loop
		return errNoContext
	}
	if l.until < 0 {
		return fmt.Errorf("until is %d, want the total number of steps", l.until)
	}
	var o stepOptions
	for _, option := range options {
		if option == nil {
			return errors.New("an option is nil")
		}
		option.apply(&o)
	}
	if err := cmp.Or(o.check(), stateError(l.state)); err != nil {
		return err
	}
	if w, ok := l.state.(Watched); ok {
		l.watched, l.state = w, w.Inner()
		if err := stateError(l.state); err != nil {
			return err
		}
	}
	settings := slices.Concat(o.settings, []Setting{{Name: "balance", Value: string(o.balance)}, {Name: "state", Value: stateKind(l.state)}})
	if g.loops.ordinal() > 0 {
		if err := g.loops.follows(l, settings); err != nil {
			return err
		}
	}
	l.register(o.balance, settings)
	return nil
}

// stateKind describes the type of a state, so that members can compare it.
func stateKind(s State) string {
	switch v := s.(type) {
	case nil:
		return "nil"
	case *variables:
		return v.String()
	}
	return fmt.Sprintf("%T", s)
}

// register makes the state of the loop the state of the group.
func (l *loop) register(balance Balance, settings []Setting) {
	g := l.group
	g.outcome.end(nil, 0)
	g.loops.stopped, g.loops.balance = false, balance
	g.loops.untils = append(g.loops.untils, l.until)
	g.held.register(func(t *terms) {
		t.state, t.settings, t.first = l.state, settings, g.loops.untils[0]
		g.held.changes.again()
		if t.donor == nil {
			t.donor = newDonor(l.state, g.cfg.StateRate)
		}
	})
}

// sessions runs turns in one session after another until all members have committed the last step.
// After a session that broke or was left it takes the next session. If there is none it returns the
// reason, or nil if this peer has committed the last step.
func (l *loop) sessions(yield func(*Turn) bool) error {
	for first := true; ; first = false {
		s, err := l.session(first)
		l.stopped = l.stopped || l.group.loops.stopped
		if err != nil {
			// This peer has committed all steps, so the lack of a further view is the normal end.
			if errors.Is(err, ErrNoView) && !errors.Is(err, ErrFenced) && !errors.Is(err, ErrRefused) && !errors.Is(err, collective.ErrMistake) &&
				l.over() && l.ctx.Err() == nil && !l.group.held.void {
				return nil
			}
			return err
		}
		if l.over() {
			return nil
		}
		if err = l.turns(s, yield); !errors.Is(err, errAgain) {
			return err
		}
	}
}

// over reports whether the last step is committed, or the loop was stopped.
func (l *loop) over() bool { return l.stopped || l.state.Step() >= l.until }

// session returns the next session. A later loop begins in the session in which the last loop
// ended, if that is still usable.
func (l *loop) session(first bool) (*Session, error) {
	g := l.group
	if s := g.sessions.using(); first && g.loops.ordinal() > 1 && s != nil && s.Comm.Err() == nil {
		return s, nil
	}
	s, err := g.Sessions().Next(l.ctx, g.loops.epoch)
	if err != nil {
		return nil, err
	}
	g.loops.epoch = s.View.Epoch
	l.settle(s)
	return s, nil
}

// turns runs turns in a session until the loop is over or the session ends. It returns nil after
// the last step, errAgain if the loop goes on in another session, and any other error if the loop
// ends with that error. Unless the session broke, all members leave it after the same turn, because
// boundary has the same result at all members.
func (l *loop) turns(s *Session, yield func(*Turn) bool) error {
	if s.division == nil {
		if err := l.enter(s); err != nil {
			return err
		}
	}
	if err := l.group.held.changes.begin(l.state); err != nil {
		return l.mistake("%w", err)
	}
	l.busy = time.AfterFunc(bodyTerm, func() { l.group.current().report.notBusy(bodyBusy) })
	defer l.busy.Stop()
	for l.last = time.Now(); !l.over(); {
		t, err := l.turn(s, yield)
		if err == nil {
			err = l.boundary(s, t)
		}
		if err != nil {
			l.lose(t.step)
			return err
		}
	}
	return nil
}

// turn runs the body for one attempt at a step, and records the step if the body has committed it.
func (l *loop) turn(s *Session, yield func(*Turn) bool) (*Turn, error) {
	t := &Turn{Comm: s.Comm, Rank: s.Rank, loop: l, session: s, step: l.state.Step() + 1, begun: time.Now(), samples: -1}
	s.turn.Store(t)
	// While the body computes, this peer makes no calls, and its heartbeats report this reason for
	// at most bodyTerm.
	l.busy.Reset(bodyTerm)
	l.group.current().report.busy(bodyBusy)
	err := l.body(t, yield)
	l.group.current().report.busy("")
	s.turn.Store(nil)
	t.ended = time.Now()
	if err == nil {
		err = l.turnResult(t)
	}
	if err == nil {
		err = l.observe(t)
	}
	if err != nil {
		return t, err
	}
	return t, l.group.Sessions().Committed(t.step)
}

// observe logs once if steps with calls leave the state unchanged, see changes.
func (l *loop) observe(t *Turn) error {
	if t.first.Load() == 0 {
		return nil
	}
	tell, err := l.group.held.changes.count(l.state)
	if err != nil {
		return l.mistake("%w", err)
	}
	if tell && t.session.speaks() {
		remedy := "otherwise commit to the variables of the state"
		if _, slices := observed(l.state); slices {
			remedy = "if the loop replaces a slice (w = next), use copy(w, next) or elastic.Vectors(&step, &w)"
		}
		l.group.Sessions().Emit(t.session.View.Epoch, t.step, event.Unchanged{Steps: stillSteps, Remedy: remedy})
	}
	return nil
}

// body calls the body of the loop. If the body leaves the loop, by break or by a panic, the other
// members would wait for this one. So body revokes the session with an error.
func (l *loop) body(t *Turn, yield func(*Turn) bool) error {
	more, returned := false, false
	defer func() {
		if !returned {
			d := l.group.current()
			d.report.busy("")
			// The panic continues, and skips the end of Steps.
			l.group.loops.err = l.leftEarly(t)
			if errors.Is(l.group.loops.err, collective.ErrMistake) {
				d.mistaken(l.ctx, l.group.loops.err)
			}
		}
	}()
	more = yield(t)
	returned = true
	if more {
		return nil
	}
	return l.leftEarly(t)
}

// leftEarly ends the loop after its body has left it.
func (l *loop) leftEarly(t *Turn) error {
	_, failed := t.failure()
	switch {
	case l.ctx.Err() != nil:
		return l.abandon(t, context.Cause(l.ctx))
	case t.fail != nil:
		return l.abandon(t, t.fail)
	case failed != nil:
		return l.mistake("left its loop in step %d, in which a call had failed: continue, and the step is tried again (%w)", t.step, failed)
	}
	return l.mistake("left its loop in step %d by break, return or a panic: end a loop by Turn.Stop, and for an error by Turn.Fail", t.step)
}

// turnResult returns the outcome of a turn whose body has returned: nil if the body has committed
// the step, errAgain if the step is to be tried again, or the error that ends the loop.
func (l *loop) turnResult(t *Turn) error {
	after, cause := l.state.Step(), t.session.Comm.Err()
	at, failed := t.failure()
	switch {
	case t.fail != nil:
		return l.abandon(t, t.fail)
	case t.wrong != nil:
		return l.mistake("%w", t.wrong)
	case stateError(l.state) != nil:
		return l.mistake("in step %d %w", t.step, stateError(l.state))
	case after == t.step && failed != nil && at < t.step:
		return l.mistake("committed step %d though a call in it had failed: commit only when all calls have returned nil (%w)", t.step, failed)
	case after == t.step:
		return nil
	case after != t.step-1:
		return l.mistake("a turn of the loop took the state from step %d to step %d: commit one step in each turn", t.step-1, after)
	case failed == nil && cause == nil:
		return l.mistake("a turn of the loop neither failed nor committed step %d: let the state count the step after the last call, or call Turn.Fail with the reason", t.step)
	}
	l.group.loops.open = t
	if failed == nil {
		failed = cause
	}
	return l.failed(t.session, t.step, failed)
}

// failed returns errAgain after a call in a session has failed, or the error that ends the loop.
func (l *loop) failed(s *Session, step int64, err error) error {
	cause := s.Comm.Err()
	switch {
	case l.ctx.Err() != nil:
		return fmt.Errorf("elastic: step %d: %w", step, context.Cause(l.ctx))
	case errors.Is(err, collective.ErrMistake), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("elastic: step %d: %w", step, err)
	case errors.Is(cause, collective.ErrMistake):
		return fmt.Errorf("elastic: step %d: %w", step, cause)
	}
	return errAgain
}

// abandon ends the loop at this peer only, because of an error of this peer. The other members go
// on without this peer.
func (l *loop) abandon(t *Turn, why error) error {
	l.revoke(t.session, &collective.AbortError{Rank: t.session.Rank, Cause: fmt.Sprintf("step %d: %v", t.step, why)})
	l.group.current().report.fail()
	l.group.leaveAtOnce()
	return fmt.Errorf("elastic: step %d: %w", t.step, why)
}

// revokeTerm bounds the wait of a peer that ends its loop until the other members have received the
// error. The peer waits because its process may be about to end.
const revokeTerm = time.Second

// revoke revokes a session, and waits until the other members have received the cause, at most for
// revokeTerm.
func (l *loop) revoke(s *Session, why error) {
	s.Comm.Revoke(why)
	told := make(chan struct{})
	l.group.sessions.retire(s, func() { close(told) })
	timer := time.NewTimer(revokeTerm)
	defer timer.Stop()
	select {
	case <-told:
	case <-timer.C:
	}
}

// outcome returns the event for the end of the loop: the number of steps, the number of members
// that committed the last one, and a hash of the state.
func (l *loop) outcome() (*event.Done, error) {
	h := sha256.New()
	if err := hashState(h, l.state); err != nil {
		return nil, fmt.Errorf("elastic: save the state after step %d: %w", l.state.Step(), err)
	}
	return &event.Done{Steps: l.state.Step(), Peers: max(1, l.group.loops.peers), SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}
