package elastic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// round is what came of making the offer to all.
type round struct {
	seen     bool // somebody may be there
	answered bool // a member answered
	accepted bool // one accepted
	last     error
}

// answered is what became of the offer to one.
type answered struct {
	member Member
	reply
	err error
}

// maxOffers bounds the offers under way at a time.
const maxOffers = 16

// offerToAll makes the offer to every contact and every member that these name, to many
// at a time, as some may not be there any more. The error is the last one, or that of a
// refusal, which speaks for the job.
func (j *joiner) offerToAll(ctx context.Context) (round, error) {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	answers := make(chan answered)
	ask := func(m Member) {
		asking.Go(func() {
			r, err := j.offerTo(ctx, m, j.offer())
			select {
			case answers <- answered{m, r, err}:
			case <-ctx.Done():
			}
		})
	}
	did := round{last: errors.New("no member is known")}
	todo, known, under := j.contacts(), map[ID]bool{j.k.ep.Self.ID: true}, 0
	for {
		for len(todo) > 0 && under < maxOffers {
			if m := todo[0]; !known[m.ID] {
				known[m.ID] = true
				under++
				ask(m)
			}
			todo = todo[1:]
		}
		if under == 0 {
			return did, did.last
		}
		select {
		case a := <-answers:
			under--
			todo = append(todo, j.take(a, &did)...)
			if errors.Is(did.last, ErrRefused) {
				return did, did.last
			}
		case <-ctx.Done():
			return did, context.Cause(ctx)
		}
	}
}

// contacts returns those to ask first: members of the view as last heard, then those
// that are known from elsewhere.
func (j *joiner) contacts() []Member {
	j.mu.Lock()
	all := slices.Clone(j.members)
	j.mu.Unlock()
	g := j.group
	g.mu.Lock()
	more, met := g.cfg.Contacts, g.met
	g.mu.Unlock()
	if more != nil {
		all = append(all, more()...)
	}
	return append(all, met...)
}

// take takes in one answer, and returns the members that it names.
func (j *joiner) take(a answered, did *round) []Member {
	did.answered = did.answered || a.err == nil && !a.Outside
	did.seen = did.seen || a.err != nil && !errors.Is(a.err, ErrGone)
	switch {
	case a.err != nil:
		did.last = a.err
	case a.Refused != "":
		did.last = fmt.Errorf("%w by %s: %s", ErrRefused, a.member.ID.Short(), a.Refused)
	case a.Wait != "":
		did.last = fmt.Errorf("%s %s", a.member.ID.Short(), a.Wait)
		if a.Ended {
			j.k.end()
		}
	default:
		j.met(a.reply)
		did.accepted = true
		j.first.Do(func() { close(j.accepted) })
		return a.Members
	}
	return nil
}

// offer is what all members are told now and then.
func (j *joiner) offer() offer {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.admitted == nil {
		return offer{}
	}
	return offer{Admitted: true, Candidate: *j.admitted}
}

// offerTo makes the offer to one member. What all offers have in common is filled in.
func (j *joiner) offerTo(ctx context.Context, m Member, o offer) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, offerPatience)
	defer cancel()
	stop := context.AfterFunc(j.k.ctx, cancel)
	defer stop()
	if err := j.k.ep.Network.Introduce([]Member{m}); err != nil {
		return reply{}, err
	}
	o.Member, o.State, o.Settings = j.k.ep.Self, j.group.state != nil, j.group.settings
	o.Until = j.group.loops.first()
	begun := time.Now()
	r, err := propose(ctx, j.k.ep, m.ID, o)
	took := time.Since(begun)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cutOff[m.ID] = err != nil && (errors.Is(err, ErrGone) || errors.Is(ctx.Err(), context.DeadlineExceeded))
	if err == nil && (j.shortest == 0 || took < j.shortest) {
		j.shortest = took
	}
	return r, err
}

// maxUnreached bounds how many members that it cannot reach a peer names.
const maxUnreached = 256

// unreached returns the members that the last offer did not get to. To those that were made
// none it makes one.
func (j *joiner) unreached(ctx context.Context) []ID {
	for some := range slices.Chunk(j.unasked(), maxOffers) {
		var asking sync.WaitGroup
		for _, m := range some {
			asking.Go(func() { _, _ = j.offerTo(ctx, m, j.offer()) }) // what comes of it is noted
		}
		asking.Wait()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	var ids []ID
	for _, m := range j.members {
		if j.cutOff[m.ID] && len(ids) < maxUnreached {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// unasked returns the members to which no offer was made.
func (j *joiner) unasked() []Member {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(j.members), func(m Member) bool {
		_, asked := j.cutOff[m.ID]
		return asked
	})
}
