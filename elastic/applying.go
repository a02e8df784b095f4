package elastic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic/internal/transfer"
	"github.com/elrun/elrun/event"
)

// applying is a peer that has copied the state and wants to be let in. All is done by the
// goroutine of Next, which owns the state:
//
//	follow until level
//	   |<------------------------------------+
//	trial: how fast would this peer be?      |
//	   |                                     |
//	follow until level again                 |
//	   |<------------------+                 |
//	plea to one member     |                 |
//	   |-- not yet --------+                 |
//	   |-- let in: ask; after a while without a view: the plea again
//	   |-- parked: follow for a while, or until a member is gone
//
// So a parked peer is level all the time, and can step in as soon as it is needed.
type applying struct {
	*joiner
	inView   context.Context // ends when this peer is in a view, or gives up
	replayer Replayer        // nil where the state cannot follow
	src      *rated
	opts     transfer.Options
	moved    int64         // bytes of state
	copied   time.Duration // that the first copy took

	candidate Candidate
	told      string    // what people were told last
	since     time.Time // parked; zero if it is not
	tellAt    time.Time // when they are told again that it still is
}

const (
	// askSoon is after how long a peer asks again that was told "not yet", and
	// askAgain after how long one that was let in and is in no view.
	askSoon  = 100 * time.Millisecond
	askAgain = 2 * time.Second
	// firstPark and longPark bound the time after which a parked peer asks again.
	firstPark = time.Second
	longPark  = 15 * time.Second
	// remindAfter is after how long people are told that a peer is still parked; then
	// after twice as long, and so on.
	remindAfter = time.Minute
)

// run goes on until inView ends or something is wrong for good.
func (a *applying) run() error {
	pause := firstPark
	for a.inView.Err() == nil {
		if err := a.prepare(); err != nil {
			return err
		}
		parked, err := a.plead()
		if err != nil || a.inView.Err() != nil {
			return err
		}
		if parked == "" {
			return nil
		}
		a.tell(parked)
		if err := a.follow(pause, a.departure(), false); err != nil {
			return err
		}
		pause = min(2*pause, longPark)
	}
	return nil
}

// prepare makes this peer level, with its speed known.
func (a *applying) prepare() error {
	if err := a.follow(0, nil, true); err != nil {
		return err
	}
	trier, ok := a.group.state.(Trier)
	if !ok {
		return nil
	}
	err := a.keeping(func() (err error) {
		a.candidate, err = trier.Trial(a.inView)
		return err
	})
	if err != nil {
		return fmt.Errorf("measure the speed of this peer: %w", err)
	}
	return a.follow(0, nil, true)
}

// plead asks until this peer is in a view or is parked, and returns why it is.
func (a *applying) plead() (parked string, err error) {
	for a.inView.Err() == nil {
		var v verdict
		err := a.keeping(func() (err error) {
			v, err = a.ask(a.inView, a.figures())
			return err
		})
		if err != nil || v.parked != "" {
			return v.parked, err
		}
		pause := askSoon
		switch {
		case v.apart != "":
			pause = offerPeriod // then other answers may have come
			a.tell(v.apart)
		case v.by != "":
			pause = askAgain
			if err := a.k.ask(a.contactsFrom(v.by)); err != nil {
				return "", err
			}
		}
		if err := a.follow(pause, nil, false); err != nil {
			return "", err
		}
	}
	return "", nil
}

// keeping calls f while donors keep the updates that this peer will need afterwards.
func (a *applying) keeping(f func() error) error {
	if a.replayer == nil {
		return f()
	}
	return transfer.Keep(a.inView, a.src, a.opts, a.replayer.Step(), f)
}

// figures are what this peer tells of itself.
func (a *applying) figures() Candidate {
	c := a.candidate
	c.Delay = a.delay()
	if a.group.cfg.StateRate == 0 { // else the limit may be what was measured
		c.Bandwidth = a.src.rate()
	}
	return c
}

// Why following ends.
var (
	errLevel  = errors.New("level")
	errEnough = errors.New("enough")
)

// follow applies the updates of the job until this peer is level, if that is wanted, or
// gone is closed, or so much time is over, if it is above 0; or inView ends.
func (a *applying) follow(long time.Duration, gone <-chan struct{}, level bool) error {
	if a.replayer == nil && level {
		return nil
	}
	ctx, cancel := context.WithCancelCause(a.inView)
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
	if a.replayer == nil {
		<-ctx.Done()
		return nil
	}
	err := transfer.Follow(ctx, a.src, a.opts, transfer.Following{
		After: a.replayer.Step(),
		Apply: func(_ int64, update []byte) error {
			a.moved += int64(len(update))
			return a.group.apply(a.replayer, update)
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
		a.replayer = nil
		a.k.emit(0, event.Parked{Who: a.k.ep.Self.ID.Short(), Reason: fmt.Sprintf(
			"%v: it is let in with one pause of about %v, in which it copies the state", never, a.copied.Round(time.Millisecond))})
		return a.follow(long, gone, level)
	case ctx.Err() != nil:
		return nil
	}
	return err
}

// tell says that this peer is parked: at first, when the reason is another, and now and
// then. Other figures are no other reason.
func (a *applying) tell(why string) {
	now, kind := time.Now(), strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r == '.' {
			return -1
		}
		return r
	}, why)
	if a.since.IsZero() {
		a.since = now
	}
	waited := now.Sub(a.since)
	switch {
	case kind != a.told:
		a.tellAt = now.Add(max(remindAfter, waited))
	case now.Before(a.tellAt):
		return
	default:
		why = fmt.Sprintf("%s; it has waited for %v", why, waited.Round(time.Second))
		a.tellAt = now.Add(waited)
	}
	a.told = kind
	a.k.emit(0, event.Parked{Who: a.k.ep.Self.ID.Short(), Reason: why})
}

// verdict is the answer to a plea: parked, or apart from a member, or let in by one, or
// neither yet.
type verdict struct {
	parked string
	apart  string
	by     ID
}

// ask asks the members in rank order whether this peer may join, and returns the first
// verdict. That the first member decides as long as it lives makes for one judge of
// peers that ask at the same time.
func (j *joiner) ask(ctx context.Context, c Candidate) (verdict, error) {
	unreached := j.unreached(ctx)
	for _, m := range j.known() {
		r, err := j.offerTo(ctx, m, offer{Level: true, Candidate: c, Unreached: unreached})
		switch {
		case err != nil || r.Wait != "":
			continue // the next one may know
		case r.Refused != "":
			return verdict{}, fmt.Errorf("%w by %s: %s", ErrRefused, m.ID.Short(), r.Refused)
		case r.Parked != "":
			j.admit(nil)
			return verdict{parked: r.Parked}, nil
		case r.Apart != "":
			j.admit(nil)
			return verdict{apart: r.Apart}, nil
		case r.Later != "":
			return verdict{}, nil
		}
		j.admit(&c)
		return verdict{by: m.ID}, nil
	}
	return verdict{}, nil
}

// known are the members as last heard.
func (j *joiner) known() []Member {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.members
}

// admit notes the figures with which this peer was let in, or that it was not: the
// offers to all members carry it, so that others can let it in where the one dies that
// has decided.
func (j *joiner) admit(c *Candidate) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.admitted = c
}

// contactsFrom lists the members to ask, that one first.
func (j *joiner) contactsFrom(first ID) []ID {
	ids := []ID{first}
	for _, m := range j.known() {
		if m.ID != first {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// departure returns a channel that is closed when a member is heard to be gone.
func (j *joiner) departure() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.gone
}

// met takes the members that a reply names, and reports those as gone that were named
// before and are not any more. Replies may overtake each other: only one of a later view
// tells of a departure.
func (j *joiner) met(r reply) {
	j.mu.Lock()
	defer j.mu.Unlock()
	lost := slices.ContainsFunc(j.members, func(m Member) bool {
		return !slices.ContainsFunc(r.Members, func(o Member) bool { return o.ID == m.ID })
	})
	if lost && r.Epoch > j.epoch {
		close(j.gone)
		j.gone = make(chan struct{})
	}
	j.members, j.epoch = r.Members, max(j.epoch, r.Epoch)
}

// delay is the shortest that an answer took.
func (j *joiner) delay() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.shortest
}
