package elastic

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic/internal/transfer"
	"github.com/elrun/elrun/event"
)

// follower follows the updates and requests admission for a newcomer that has copied the state. The
// goroutine of Next does all of this work and owns the follower:
//
//	follow until level
//	   |<------------------------------------+
//	trial: measure the speed of this peer    |
//	   |                                     |
//	follow until level again                 |
//	   |<------------------+                 |
//	request to one member  |                 |
//	   |-- not yet --------+                 |
//	   |-- admitted: ask the machine for a view; without one after a while, request again
//	   |-- parked: follow for a while, or until a member is gone
//
// Invariant: a parked peer keeps following the updates, so it is level whenever it is needed.
type follower struct {
	joiner   *joiner
	inView   context.Context // ends when this peer is in a view, or cannot join
	replayer Replayer        // nil if the state cannot follow single updates
	src      *rated          // the members as donors, with the rate of their answers
	opts     transfer.Options
	moved    int64         // bytes of state and updates received
	copied   time.Duration // duration of the first copy

	candidate Candidate
	told      string    // the last reason in the log, without digits
	since     time.Time // when this peer was parked first; zero if it was not
	tellAt    time.Time // when the log next repeats that this peer is still parked
}

const (
	// askSoon is the pause before the next request after the answer "not yet". It doubles up to the
	// time between two rounds of offers. askAgain is the pause after an admission that no view has
	// followed.
	askSoon  = 100 * time.Millisecond
	askAgain = 2 * time.Second
	// firstPark and longPark bound the pause between two requests of a parked peer, which doubles
	// each time (exponential backoff).
	firstPark = time.Second
	longPark  = 15 * time.Second
	// remindAfter is the first interval after which the log repeats that a peer is still parked;
	// the interval doubles each time.
	remindAfter = time.Minute
)

// run requests admission until inView ends or an error is final.
func (f *follower) run() error {
	pause := firstPark
	for f.inView.Err() == nil {
		if err := f.prepare(); err != nil {
			return err
		}
		parked, err := f.requestAdmission()
		if err != nil || f.inView.Err() != nil {
			return err
		}
		if parked == "" {
			return nil
		}
		f.logParked(parked)
		if err := f.follow(pause, f.joiner.departure(), false); err != nil {
			return err
		}
		pause = min(2*pause, longPark)
	}
	return nil
}

// prepare brings this peer level and measures its speed.
func (f *follower) prepare() error {
	if err := f.follow(0, nil, true); err != nil {
		return err
	}
	trier, ok := f.joiner.group.held.state.(Trier)
	if !ok {
		return nil
	}
	err := f.holdingUpdates(func() (err error) {
		f.candidate, err = trier.Trial(f.inView)
		return err
	})
	if err != nil {
		return fmt.Errorf("measure the speed of this peer: %w", err)
	}
	return f.follow(0, nil, true)
}

// requestAdmission requests admission until this peer is in a view or is parked. It returns the
// reason for parking.
func (f *follower) requestAdmission() (parked string, err error) {
	for soon := askSoon; f.inView.Err() == nil; soon *= 2 {
		var v admissionAnswer
		err := f.holdingUpdates(func() (err error) {
			v, err = f.joiner.ask(f.inView, f.figures())
			return err
		})
		if err != nil || v.parked != "" {
			return v.parked, err
		}
		soon = min(soon, f.joiner.roundPeriod())
		pause := soon
		switch {
		case v.cutOff != "":
			pause = f.joiner.roundPeriod() // until then other peers may have answered the offer
			f.logParked(v.cutOff)
		case v.by != "":
			pause = max(askAgain, f.joiner.roundPeriod())
			if err := f.joiner.d.ask(f.joiner.contactsFrom(v.by)); err != nil {
				return "", err
			}
		}
		if err := f.follow(pause, nil, false); err != nil {
			return "", err
		}
	}
	return "", nil
}

// holdingUpdates calls work. Until work returns, the donors keep the updates that this peer needs
// afterwards.
func (f *follower) holdingUpdates(work func() error) error {
	if f.replayer == nil {
		return work()
	}
	return transfer.Keep(f.inView, f.src, f.opts, f.replayer.Step(), work)
}

// figures returns the measurements that a request for admission carries.
func (f *follower) figures() Candidate {
	c := f.candidate
	c.Delay = f.joiner.delay()
	if f.joiner.group.cfg.StateRate == 0 { // with a limit the rate measures the limit, not the network
		c.Bandwidth = f.src.rate()
	}
	return c
}

// The causes for which follow ends without an error.
var (
	errLevel  = errors.New("level")
	errEnough = errors.New("enough")
)

// follow applies the updates of the job. It ends when this peer is level (if the argument level is
// true), when the channel gone is closed, after the duration long (if it is above 0), or when
// inView ends. If this peer can never become level, follow drops the replayer and from then on only
// waits; the session that admits the peer then copies the whole state.
func (f *follower) follow(long time.Duration, gone <-chan struct{}, level bool) error {
	if f.replayer == nil && level {
		return nil
	}
	ctx, cancel := context.WithCancelCause(f.inView)
	if long > 0 {
		timer := time.AfterFunc(long, func() { cancel(errEnough) })
		defer timer.Stop()
	}
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel(nil)
	waiting.Go(func() {
		select {
		case <-gone:
			cancel(errEnough)
		case <-ctx.Done():
		}
	})
	if f.replayer == nil {
		<-ctx.Done()
		return nil
	}
	err := transfer.Follow(ctx, f.src, f.opts, transfer.Following{
		After: f.replayer.Step(),
		Apply: func(_ int64, update []byte) error {
			f.moved += int64(len(update))
			return f.joiner.group.held.apply(f.replayer, update)
		},
		Level: func(_ int64, is bool) {
			if is && level {
				cancel(errLevel)
			}
		},
	})
	var never *transfer.NeverLevelError
	switch {
	case errors.As(err, &never):
		f.replayer = nil
		f.joiner.d.emit(0, event.Parked{Who: f.joiner.d.ep.Self.ID.Short(), Reason: fmt.Sprintf(
			"%v; the members pause for about %v while the newcomer copies the state", never, f.copied.Round(time.Millisecond))})
		return f.follow(long, gone, level)
	case ctx.Err() != nil:
		return nil
	}
	return err
}

// logParked logs that this peer is parked: on the first call, whenever the reason changes, and from
// time to time as a reminder. Reasons that differ only in digits count as equal.
func (f *follower) logParked(why string) {
	now, kind := time.Now(), strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r == '.' {
			return -1
		}
		return r
	}, why)
	if f.since.IsZero() {
		f.since = now
	}
	waited := now.Sub(f.since)
	switch {
	case kind != f.told:
		f.tellAt = now.Add(max(remindAfter, waited))
	case now.Before(f.tellAt):
		return
	default:
		why = fmt.Sprintf("%s; waiting for %v so far", why, waited.Round(time.Second))
		f.tellAt = now.Add(waited)
	}
	f.told = kind
	f.joiner.d.emit(0, event.Parked{Who: f.joiner.d.ep.Self.ID.Short(), Reason: why})
}

// admissionAnswer is the answer to a request for admission. At most one field is set; if none is,
// the members cannot decide yet.
type admissionAnswer struct {
	parked string // why this peer is not admitted for now
	cutOff string // why this peer would be put out again: it has no connection with a member
	by     ID     // the member that admitted this peer
}
