package elastic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// offerRounds makes the offers of a newcomer, round after round, until the newcomer is in a view or
// cannot join. The goroutine that calls run owns it; each offer has a goroutine of its own.
//
// A round begins at each tick. In a round the newcomer makes the offer to all targets
// (reach.targets), except to members that have not answered the last offer yet. So a member that
// does not answer delays no offer to another member.
type offerRounds struct {
	joiner   *joiner
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
	reply  reply
	err    error
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

// run does the work of makeOffers.
func (o *offerRounds) run(ctx context.Context) error {
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case a := <-o.answers:
			if err := o.take(a); err != nil {
				return err
			}
		case <-tick.C:
			if o.joiner.d.status.paused() { // the launcher knows that no member lives
				o.begun, o.deserted = time.Now(), desertion{}
				tick.Reset(offerPause)
				continue
			}
			if err := o.hopeless(time.Now()); err != nil {
				return err
			}
			o.round()
			tick.Reset(o.pause())
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-o.joiner.group.orders.leaves:
			return ErrLeft
		case <-o.joiner.d.loop.ctx.Done():
			return fmt.Errorf("%w: closed", ErrNoView)
		}
		o.start(ctx)
	}
}

// round begins a round.
func (o *offerRounds) round() {
	// An offer to a peer that does not answer stays in flight for long, so offerPatience bounds the
	// wait for it.
	now := time.Now()
	if o.asked != nil && !o.replied && (len(o.underWay) == 0 || now.Sub(o.widened) >= offerPatience) {
		o.unheard++
		o.widened = now
	}
	o.rounds++
	o.todo, o.asked, o.replied = o.joiner.contacts(o.unheard), make(map[ID]bool), false
	if len(o.todo)+len(o.underWay) == 0 {
		o.deserted.sign(now)
	}
}

// start makes offers to the peers in todo, while fewer than maxOffers are in flight.
func (o *offerRounds) start(ctx context.Context) {
	for len(o.todo) > 0 && len(o.underWay) < maxOffers {
		m := o.todo[0]
		o.todo = o.todo[1:]
		if _, waits := o.underWay[m.ID]; waits || o.asked[m.ID] || m.ID == o.joiner.d.ep.Self.ID {
			continue
		}
		o.asked[m.ID], o.underWay[m.ID] = true, time.Now()
		o.asking.Go(func() {
			r, err := o.joiner.offerTo(ctx, m, o.joiner.offer())
			select {
			case o.answers <- answered{m, r, err}:
			case <-ctx.Done():
			}
		})
	}
}

// take handles the answer to an offer. An error means that a member refuses this peer because of
// its program, settings or ticket, so the whole job refuses this peer.
func (o *offerRounds) take(a answered) error {
	delete(o.underWay, a.member.ID)
	switch {
	case a.err == nil && !a.reply.Outside:
		o.replyAt, o.rounds, o.unheard, o.replied = time.Now(), 0, 0, true
		o.deserted = desertion{}
	case a.err == nil || errors.Is(a.err, ErrGone) || errors.Is(a.err, ErrOutside): // another newcomer has answered, or no process listens
		o.deserted.sign(time.Now())
	default:
		o.deserted = desertion{}
	}
	switch {
	case a.err != nil:
		o.last = a.err
	case a.reply.Refused != "":
		return fmt.Errorf("%w by %s: %s", ErrRefused, a.member.ID.Short(), a.reply.Refused)
	case a.reply.Wait != "":
		o.last = fmt.Errorf("%s %s", a.member.ID.Short(), a.reply.Wait)
		if a.reply.Ended {
			o.joiner.d.status.endJob()
		}
	default:
		o.joiner.met(a.reply)
		o.accepted = true
		o.joiner.first.Do(func() { close(o.joiner.accepted) })
		o.joiner.mu.Lock()
		defer o.joiner.mu.Unlock()
		o.todo = append(o.todo, o.joiner.reach.targets()...)
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
func (o *offerRounds) hopeless(now time.Time) error {
	// If a peer is certainly gone, the answer to that effect comes soon. So an offer that is in
	// flight for longer ends the series of signs.
	for _, since := range o.underWay {
		if now.Sub(since) > offerPatience {
			o.deserted = desertion{}
		}
	}
	// The job is over when all known members have been certainly gone for long enough.
	patience := desertedAfter
	if s, _ := o.joiner.d.status.now(); s.ended {
		patience = endedAfter
	}
	most := o.joiner.group.cfg.RejoinTimeout
	switch {
	case o.deserted.lasts() > patience:
		return fmt.Errorf("%w: the job has ended: %w", ErrNoView, o.last)
	// Members that do not answer may live on the other side of a network partition.
	case now.Sub(o.begun) > most && now.Sub(o.replyAt) > most:
		return fmt.Errorf("%w: no member has answered for %v: %w", ErrQuorum, most, o.last)
	}
	return nil
}

// pause returns the time until the next round.
func (o *offerRounds) pause() time.Duration {
	o.joiner.mu.Lock()
	defer o.joiner.mu.Unlock()
	if o.accepted {
		return o.joiner.period()
	}
	return min(offerPause<<min(o.rounds, 10), longPause)
}
