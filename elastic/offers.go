package elastic

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
// names. Offers run concurrently, as some of the peers may be gone. The argument heard tells
// whether a member replied in the round before. It returns the last error. A refusal holds for the
// whole job, so offerToAll returns it at once.
func (j *joiner) offerToAll(ctx context.Context, heard bool) (round, error) {
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
	todo, known, under := j.contacts(heard), map[ID]bool{j.d.ep.Self.ID: true}, 0
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

// contacts returns the peers to ask first: the members of the latest known view, and, unless a
// member has replied in the last round, the contacts, then members that an earlier identity knew.
// Contacts may be newcomers themselves, to which a newcomer cannot prove its right to join: each
// attempt would cost both a handshake.
func (j *joiner) contacts(heard bool) []Member {
	j.mu.Lock()
	all := slices.Clone(j.members)
	j.mu.Unlock()
	if heard && len(all) > 0 {
		return all
	}
	if more := j.group.cfg.Contacts; more != nil {
		all = append(all, more()...)
	}
	return append(all, j.group.identity.known()...)
}

// take records one reply in the result did, and returns the members that the reply names.
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
			j.d.status.endJob()
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
	ctx, cancel := context.WithTimeout(ctx, offerPatience)
	defer cancel()
	stop := context.AfterFunc(j.d.loop.ctx, cancel)
	defer stop()
	o.Member, o.State, o.Settings = j.d.ep.self(), j.group.state != nil, j.group.settings
	o.Until, o.Relay = j.group.first, j.d.ep.Relay
	o.Unreached, o.Met, o.Tried = j.reach()
	begun := time.Now()
	r, err := propose(ctx, j.d.ep, to, o)
	took := time.Since(begun)
	j.mu.Lock()
	defer j.mu.Unlock()
	// A refused connection or a timeout counts as unreachable; other errors come from the peer.
	j.cutOff[to] = err != nil && (errors.Is(err, ErrGone) || errors.Is(ctx.Err(), context.DeadlineExceeded))
	if err == nil && !r.Outside && (j.shortest == 0 || took < j.shortest) {
		j.shortest = took
	}
	return r, err
}

const (
	// maxUnreached bounds the list of unreachable peers in an offer, and the list of reached peers.
	maxUnreached = 256
	// maxTried is the number of members that an offer names as tried. Those that are out of the
	// view when the offer arrives tell nothing.
	maxTried = 8
	// comingTerm is the time for which a newcomer is remembered after a reply has introduced it.
	comingTerm = 2 * approvalTerm
)

// comer is another newcomer, which a reply has introduced.
type comer struct {
	Member
	at time.Time
}

// reach returns the members and the newcomers that could not be reached, the newcomers that were
// reached, and the last members, in rank order, up to which all were tried.
func (j *joiner) reach() (unreached, met, tried []ID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	untried := slices.IndexFunc(j.members, func(m Member) bool { return !j.tried(m.ID) })
	if untried < 0 {
		untried = len(j.members)
	}
	for _, m := range j.members[max(0, untried-maxTried):untried] {
		tried = append(tried, m.ID)
	}
	for _, m := range j.members {
		if j.cutOff[m.ID] {
			unreached = append(unreached, m.ID)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(j.coming)) {
		switch {
		case time.Since(j.coming[id].at) >= comingTerm:
			delete(j.coming, id)
		case j.tried(id) && !j.cutOff[id]:
			met = append(met, id)
		case j.cutOff[id] && !slices.Contains(unreached, id):
			unreached = append(unreached, id)
		}
	}
	return unreached[:min(len(unreached), maxUnreached)], met[:min(len(met), maxUnreached)], tried
}

// tried reports whether a peer was made an offer. The caller holds mu.
func (j *joiner) tried(id ID) bool {
	_, is := j.cutOff[id]
	return is
}

// askRest makes the offer to the members that have not had one.
func (j *joiner) askRest(ctx context.Context) {
	j.mu.Lock()
	rest := slices.DeleteFunc(slices.Clone(j.members), func(m Member) bool { return j.tried(m.ID) })
	j.mu.Unlock()
	inParts(rest, func(m Member) { _, _ = j.offerTo(ctx, m, j.offer()) }) // deliver records the result
}

// meet connects with other newcomers until ctx ends: at once when a reply has introduced some, and
// every offerPeriod with the newcomers that were not reached.
func (j *joiner) meet(ctx context.Context) {
	again := time.NewTicker(offerPeriod)
	defer again.Stop()
	for {
		select {
		case <-again.C:
		case <-j.introduced:
		case <-ctx.Done():
			return
		}
		all := j.unmet()
		if len(all) == 0 || j.d.ep.vouch(all) != nil {
			continue // a false address is its owner's mistake
		}
		inParts(all, func(m Member) { _, _ = j.deliver(ctx, m.ID, offer{}) })
	}
}

// unmet returns the newcomers that were not reached yet.
func (j *joiner) unmet() (all []Member) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, c := range j.coming {
		if cut, tried := j.cutOff[id]; (cut || !tried) && !slices.ContainsFunc(j.members, func(m Member) bool { return m.ID == id }) {
			all = append(all, c.Member)
		}
	}
	return all
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
