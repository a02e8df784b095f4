package elastic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/event"
)

// A mistake of the program would recur in every session, so it ends the loops of all members. A
// revocation of the session alone cannot do that: a member whose session has failed for another
// reason keeps that reason, and a slow member may learn of the end of a process before it reads the
// revocation. Such a member would go on in the next view, perhaps alone, to a wrong result. So a
// member that knows of a mistake also reports it in its heartbeats, and its process does not end
// before the members that watch it know of the mistake, too. The others pass it on in their
// heartbeats, so it reaches all members of a large group.

// mistakeError describes a mistake of the program. It wraps another error, for its text.
type mistakeError struct{ error }

// mistakef returns a mistakeError with a formatted text.
func mistakef(format string, args ...any) error { return mistakeError{fmt.Errorf(format, args...)} }

// Is reports collective.ErrMistake.
func (m mistakeError) Is(target error) bool { return target == collective.ErrMistake }

// Unwrap returns the error with the text.
func (m mistakeError) Unwrap() error { return m.error }

// maxMistake bounds the text of a mistake in a heartbeat, in bytes. The text of a revocation has
// the same limit.
const maxMistake = 200

// textOf returns the description of a mistake, without the places that have passed err on.
func textOf(err error) string {
	var found mistakeError
	if errors.As(err, &found) {
		return found.Error()
	}
	cause := transport.CauseOf(0, err)
	if aborted, ok := cause.(*collective.AbortError); ok {
		return aborted.Cause
	}
	return cause.Error()
}

// mistakeTerm bounds the wait for the members that do not know of a mistake yet. A member of an
// overloaded host may not run for seconds.
const mistakeTerm = 10 * time.Second

// mistaken ends the loops of all members because of a mistake of the program, which err describes.
// It returns when the members that watch this one know of the mistake or are certainly gone, when
// ctx ends, and at the latest mistakeTerm after this member has learned of the mistake. A newcomer
// ends alone: members believe only members.
func (d *driver) mistaken(ctx context.Context, err error) {
	var own mistakeError
	found := errors.As(err, &own)                                                                    // and not learned of from another member, by the end of a session
	_, _ = ask(&d.loop, func() any { d.learnMistake(d.ep.Self.ID, textOf(err), found); return nil }) // returns when the time of the mistake is recorded
	poll := time.NewTicker(tickPeriod)
	defer poll.Stop()
	for d.report.sinceMistake() < mistakeTerm {
		now, _ := d.status.now()
		known, ok := ask(&d.loop, d.knowMistake)
		if known || !ok || now.phase != inside {
			return
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return
		}
	}
}

// learnMistake records a mistake that the member from passes on, or that this member has found, and tells
// the others. Only the first mistake counts.
func (d *driver) learnMistake(from ID, text string, found bool) {
	if d.report.get().Mistake != "" {
		return
	}
	d.report.mistake(text)
	why := &collective.AbortError{Rank: d.view.Rank(from), Cause: d.report.get().Mistake, Mistake: true}
	d.emit(d.view.Epoch, event.Mistake{Reason: why.Cause, Found: found})
	d.status.set(func(s *status) { s.wrong = fmt.Errorf("%w: %w", ErrNoView, why) })
	d.session.revoke(why)
	d.heartbeats.sendAll()
}

// knowMistake reports whether the members that watch this one know of a mistake, or are certainly
// gone.
func (r *roster) knowMistake() bool {
	return !slices.ContainsFunc(r.watched(), func(id ID) bool {
		p := r.peerOf(id)
		return p.heartbeat.Mistake == "" && p.suspected != "exit" && p.suspected != "reset"
	})
}
