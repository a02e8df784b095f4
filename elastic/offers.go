package elastic

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// offer returns the offer of a regular round. If a member has admitted this peer, the offer says
// so.
func (j *joiner) offer() offer {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.admitted == nil {
		return offer{}
	}
	return offer{Admitted: true, Candidate: *j.admitted}
}

// offerTo makes the offer to one member.
func (j *joiner) offerTo(ctx context.Context, m Member, o offer) (reply, error) {
	if err := j.d.ep.Network.Introduce([]Member{m}); err != nil {
		return reply{}, err
	}
	return j.deliver(ctx, m.ID, o)
}

// deliver makes the offer to a peer that the network knows. It fills in the fields that all offers
// have in common.
func (j *joiner) deliver(ctx context.Context, to ID, o offer) (reply, error) {
	j.mu.Lock()
	patience, connected := j.reach.patience(to), j.reach.met(to)
	o.Lease = 2 * j.period()
	j.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stop := context.AfterFunc(j.d.loop.ctx, cancel)
	defer stop()
	o.Member, o.State, o.Settings = j.d.ep.self(), j.group.state != nil, j.group.settings
	o.Until, o.Relay = j.group.first, j.d.ep.Relay
	begun := time.Now()
	j.mu.Lock()
	j.reach.describe(&o, begun)
	j.mu.Unlock()
	r, err := propose(ctx, j.d.ep, to, o)
	took := time.Since(begun)
	j.mu.Lock()
	defer j.mu.Unlock()
	// note decides whether the peer counts as cut off: at once if no process listens there, after
	// one or two offers without an answer in time, and never after another error.
	gone := err != nil && errors.Is(err, ErrGone)
	late := !gone && err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded)
	j.reach.note(to, gone, late)
	if connected && (err == nil || late) {
		j.answerTime = max(took, j.answerTime/2)
	}
	if err == nil && !r.Outside && (j.shortest == 0 || took < j.shortest) {
		j.shortest = took
	}
	return r, err
}

// askRest makes the offer to the targets to which no offer was made yet.
func (j *joiner) askRest(ctx context.Context) {
	j.mu.Lock()
	rest := j.reach.untried()
	j.mu.Unlock()
	inParts(rest, func(m Member) { _, _ = j.offerTo(ctx, m, j.offer()) }) // deliver records the result
}

// meet connects with other newcomers until ctx ends: at once when a reply has introduced some, and
// every minRound with the newcomers that were not reached.
func (j *joiner) meet(ctx context.Context) {
	again := time.NewTicker(minRound)
	defer again.Stop()
	for {
		select {
		case <-again.C:
		case <-j.introduced:
		case <-ctx.Done():
			return
		}
		j.mu.Lock()
		all := j.reach.unmet()
		j.mu.Unlock()
		if len(all) == 0 || j.d.ep.vouch(all) != nil {
			continue // a newcomer has given an invalid address
		}
		inParts(all, func(m Member) { _, _ = j.deliver(ctx, m.ID, offer{}) })
	}
}

// inParts calls f for all members, for maxOffers of them at a time.
func inParts(all []Member, f func(Member)) {
	for some := range slices.Chunk(all, maxOffers) {
		var calls sync.WaitGroup
		for _, m := range some {
			calls.Go(func() { f(m) })
		}
		calls.Wait()
	}
}
