package elastic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// round is the result of making the offer to all members once.
type round struct {
	seen     bool // at least one peer may be present
	answered bool // at least one member replied
	accepted bool // at least one member accepted
	last     error
}

// answered is the result of making the offer to one member.
type answered struct {
	member Member
	reply
	err error
}

// maxOffers bounds the offers under way at a time.
const maxOffers = 16

// offerToAll makes the offer to every contact and, transitively, to every member that a reply
// names. Offers run concurrently, as some of the peers may be gone. The error is the last one, or a
// refusal, which holds for the whole job.
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

// contacts returns the peers to ask first: the members of the latest known view, then the contacts,
// then members that an earlier identity knew.
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

// take records one reply in did, and returns the members that the reply names.
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

// offer returns the offer of a regular round. It carries an admission, if a member has granted one.
func (j *joiner) offer() offer {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.admitted == nil {
		return offer{}
	}
	return offer{Admitted: true, Candidate: *j.admitted}
}

// offerTo makes the offer to one member. It fills in the fields that all offers have in common.
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
	// A refused connection or a timeout counts as unreachable; other errors come from a member.
	j.cutOff[m.ID] = err != nil && (errors.Is(err, ErrGone) || errors.Is(ctx.Err(), context.DeadlineExceeded))
	if err == nil && (j.shortest == 0 || took < j.shortest) {
		j.shortest = took
	}
	return r, err
}

// maxUnreached bounds the number of unreachable members in an offer.
const maxUnreached = 256

// unreached returns the members to which the last offer could not be delivered. It first makes the
// offer to members that have not had one.
func (j *joiner) unreached(ctx context.Context) []ID {
	for some := range slices.Chunk(j.unasked(), maxOffers) {
		var asking sync.WaitGroup
		for _, m := range some {
			asking.Go(func() { _, _ = j.offerTo(ctx, m, j.offer()) }) // offerTo records the result
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

// unasked returns the members to which no offer was made yet.
func (j *joiner) unasked() []Member {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(j.members), func(m Member) bool {
		_, asked := j.cutOff[m.ID]
		return asked
	})
}
