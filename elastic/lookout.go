package elastic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// lookout makes the offers of a newcomer, round after round, until the newcomer is in a view or
// cannot join. The goroutine that calls run owns it; each offer has a goroutine of its own.
//
// A round begins at each tick. In a round the newcomer makes the offer to all targets
// (reach.targets), except to members that have not answered the last offer yet. So a member that
// does not answer delays no offer to another member.
type lookout struct {
	*joiner
	answers  chan answered
	asking   sync.WaitGroup
	todo     []Member         // peers that get an offer as soon as fewer than maxOffers are in flight
	asked    map[ID]bool      // the peers that have had an offer in this round
	underWay map[ID]time.Time // when each offer in flight began
	rounds   int              // number of rounds since the last reply of a member
	unheard  int              // number of times that more contacts were asked, since the last reply of a member
	widened  time.Time        // when more contacts were last asked
	replied  bool             // a member has replied in this round
	begun    time.Time
	deserted desertion
	replyAt  time.Time // time of the last reply of a member
	accepted bool      // a member has accepted the offer
	last     error     // why the last offer was not accepted
}

// answered is the result of making the offer to one member.
type answered struct {
	member Member
	reply
	err error
}

const (
	// maxOffers bounds the number of offers in flight.
	maxOffers = 16
	// firstContacts is the number of contacts that get an offer at first. The number grows by a
	// factor of four when all of them have answered or offerPatience is over, without a reply of a
	// member.
	firstContacts = 4
	// offerPause is the time between the first two rounds. It doubles with each round since the last
	// reply, up to longPause.
	offerPause = 100 * time.Millisecond
	// longPause bounds the time between two rounds before a member has accepted the offer.
	longPause = 2500 * time.Millisecond
	// After a member has accepted the offer, the time between two rounds is roundFactor times
	// joiner.answerTime, but at least minRound and at most maxRound. The time depends on answerTime
	// because the members may serve many newcomers, or share processors with many newcomers.
	roundFactor = 20
	minRound    = time.Second
	maxRound    = 20 * time.Second
	// A newcomer considers the job ended when every offer during desertedAfter has reached another
	// newcomer, or an address at which no process listens.
	desertedAfter = 10 * time.Second
	// endedAfter replaces desertedAfter when a member has reported that the job is at its end.
	endedAfter = time.Second
)

// run does the work of lookOut.
func (l *lookout) run(ctx context.Context) error {
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case a := <-l.answers:
			if err := l.take(a); err != nil {
				return err
			}
		case <-tick.C:
			if l.d.status.held() { // the launcher knows that no member lives
				l.begun, l.deserted = time.Now(), desertion{}
				tick.Reset(offerPause)
				continue
			}
			if err := l.hopeless(time.Now()); err != nil {
				return err
			}
			l.round()
			tick.Reset(l.pause())
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.group.leaves:
			return ErrLeft
		case <-l.d.loop.ctx.Done():
			return fmt.Errorf("%w: closed", ErrNoView)
		}
		l.start(ctx)
	}
}

// round begins a round.
func (l *lookout) round() {
	// An offer to a peer that does not answer stays in flight for long, so offerPatience bounds the
	// wait for it.
	now := time.Now()
	if l.asked != nil && !l.replied && (len(l.underWay) == 0 || now.Sub(l.widened) >= offerPatience) {
		l.unheard++
		l.widened = now
	}
	l.rounds++
	l.todo, l.asked, l.replied = l.contacts(l.unheard), make(map[ID]bool), false
	if len(l.todo)+len(l.underWay) == 0 {
		l.deserted.sign(now)
	}
}

// start makes offers to the peers in todo, while fewer than maxOffers are in flight.
func (l *lookout) start(ctx context.Context) {
	for len(l.todo) > 0 && len(l.underWay) < maxOffers {
		m := l.todo[0]
		l.todo = l.todo[1:]
		if _, waits := l.underWay[m.ID]; waits || l.asked[m.ID] || m.ID == l.d.ep.Self.ID {
			continue
		}
		l.asked[m.ID], l.underWay[m.ID] = true, time.Now()
		l.asking.Go(func() {
			r, err := l.offerTo(ctx, m, l.offer())
			select {
			case l.answers <- answered{m, r, err}:
			case <-ctx.Done():
			}
		})
	}
}

// take handles the answer to an offer. An error means that a member refuses this peer because of
// its program, settings or ticket, so the whole job refuses this peer.
func (l *lookout) take(a answered) error {
	delete(l.underWay, a.member.ID)
	switch {
	case a.err == nil && !a.Outside:
		l.replyAt, l.rounds, l.unheard, l.replied = time.Now(), 0, 0, true
		l.deserted = desertion{}
	case a.err == nil || errors.Is(a.err, ErrGone): // another newcomer has answered, or no process listens
		l.deserted.sign(time.Now())
	default:
		l.deserted = desertion{}
	}
	switch {
	case a.err != nil:
		l.last = a.err
	case a.Refused != "":
		return fmt.Errorf("%w by %s: %s", ErrRefused, a.member.ID.Short(), a.Refused)
	case a.Wait != "":
		l.last = fmt.Errorf("%s %s", a.member.ID.Short(), a.Wait)
		if a.Ended {
			l.d.status.endJob()
		}
	default:
		l.met(a.reply)
		l.accepted = true
		l.first.Do(func() { close(l.joiner.accepted) })
		l.mu.Lock()
		defer l.mu.Unlock()
		l.todo = append(l.todo, l.reach.targets()...)
	}
	return nil
}

// desertion is a series of signs that all members are gone, without a message of a member between
// them.
type desertion struct{ first, last time.Time }

// sign records a sign.
func (d *desertion) sign(now time.Time) {
	if d.first.IsZero() {
		d.first = now
	}
	d.last = now
}

// lasts returns the time between the first sign and the last. The time after the last sign does not
// count, as there may have been no offer.
func (d *desertion) lasts() time.Duration { return d.last.Sub(d.first) }

// hopeless returns the reason why this peer cannot join, or nil.
func (l *lookout) hopeless(now time.Time) error {
	// If a peer is certainly gone, the answer to that effect comes soon. So an offer that is in
	// flight for longer ends the series of signs.
	for _, since := range l.underWay {
		if now.Sub(since) > offerPatience {
			l.deserted = desertion{}
		}
	}
	// The job is over when all known members have been certainly gone for long enough.
	patience := desertedAfter
	if s, _ := l.d.status.now(); s.ended {
		patience = endedAfter
	}
	most := l.group.cfg.RejoinTimeout
	switch {
	case l.deserted.lasts() > patience:
		return fmt.Errorf("%w: the job has ended: %w", ErrNoView, l.last)
	// Members that do not answer may live on the other side of a network partition.
	case now.Sub(l.begun) > most && now.Sub(l.replyAt) > most:
		return fmt.Errorf("%w: no member has answered for %v: %w", ErrQuorum, most, l.last)
	}
	return nil
}

// pause returns the time until the next round.
func (l *lookout) pause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.accepted {
		return l.period()
	}
	return min(offerPause<<min(l.rounds, 10), longPause)
}
