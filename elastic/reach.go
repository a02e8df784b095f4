package elastic

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"
	"time"
)

// reach selects the members with which a newcomer connects before it joins, and records the results
// of the attempts. It has no I/O.
//
// A newcomer of a small group connects with all members. In a large group that would cost a
// handshake for each pair, while members of a large view connect with few others (transport/mesh).
// So in a large group a newcomer connects with
//
//	deciders     the first members in rank order, which admit newcomers
//	delegates    some members of each other host: a connection with one member of a host shows that
//	             the two hosts can connect
//
// Each newcomer has delegates of its own, chosen by rendezvous hashing (Thaler and Ravishankar
// 1998), so that the newcomers of a host together connect with most members, and no member has to
// accept all of them.
type reach struct {
	self  Member
	relay bool // this peer may use relays

	members []Member          // members of the latest view that a reply has described
	version []byte            // version of the latest view, see reply
	coming  map[ID]introduced // other newcomers that replies have introduced
	late    map[ID]int        // by peer, the number of consecutive offers without an answer in time
	cutOff  map[ID]bool       // by peer: whether the last offer to it could not be delivered; no entry before the first offer
}

const (
	// maxReached is the largest number of members of a small group. In a larger group it is the
	// number of delegates of a newcomer, or the number of hosts if there are more hosts. A newcomer
	// that may use relays has no delegates.
	maxReached = 8
	// maxDeciders is the number of members that get each offer of a newcomer, so that another one
	// can admit the newcomer if the first ones die.
	maxDeciders = 4
	// offerPatience bounds the time of a peer's reply to an offer. The bound doubles with each
	// consecutive offer that the peer does not answer in time, up to a factor of 1<<maxLate. On an
	// overloaded host a handshake takes long, and an abandoned handshake is lost work for both
	// sides.
	offerPatience = 2 * time.Second
	maxLate       = 3
	// maxListed bounds the list of unreachable peers in an offer, and the list of reached peers.
	maxListed = 256
	// comingTerm is the time for which a newcomer is remembered after a reply has introduced it.
	comingTerm = 2 * maxRound
)

// introduced is another newcomer, which a reply has introduced.
type introduced struct {
	Member
	at time.Time // time of the last reply that has named the newcomer
}

// newReach returns the reach of a newcomer that has received no reply yet.
func newReach(self Member, relay bool) reach {
	return reach{self: self, relay: relay, coming: make(map[ID]introduced), cutOff: make(map[ID]bool), late: make(map[ID]int)}
}

// tried reports whether the result of an offer to a peer is known.
func (r *reach) tried(id ID) bool {
	_, is := r.cutOff[id]
	return is
}

// met reports whether the last offer to a peer was delivered.
func (r *reach) met(id ID) bool { return r.tried(id) && !r.cutOff[id] }

// note records the result of an offer: gone if no process listens at the peer's addresses, late if
// no answer came in time. A peer that has answered before counts as cut off when it is late for the
// second time in a row, as an overloaded peer may be late once.
func (r *reach) note(id ID, gone, late bool) {
	if !late {
		r.cutOff[id] = gone
		delete(r.late, id)
		return
	}
	r.late[id]++
	r.cutOff[id] = !r.met(id) || r.late[id] > 1
}

// patience returns how long to wait for a peer's reply to the next offer.
func (r *reach) patience(id ID) time.Duration { return offerPatience << min(r.late[id], maxLate) }

// judges returns the members in the order in which this newcomer requests admission from them:
// first the reachable members and then the others, both in rank order.
func (r *reach) judges() []Member {
	all := slices.Clone(r.members)
	class := func(m Member) int {
		if r.cutOff[m.ID] {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(all, func(a, b Member) int { return cmp.Compare(class(a), class(b)) })
	return all
}

// deciders returns the members that judge this newcomer, in rank order: all members up to the one
// that is number maxDeciders among the members not known to be unreachable.
func (r *reach) deciders() []Member {
	n := 0
	for i, m := range r.members {
		if !r.cutOff[m.ID] {
			n++
		}
		if n == maxDeciders {
			return r.members[:i+1]
		}
	}
	return r.members
}

// delegates returns the members of other hosts with which this newcomer connects.
func (r *reach) delegates() (out []Member) {
	hosts := make(map[string][]Member)
	for _, m := range r.members {
		if !m.Beside(r.self) {
			hosts[m.hostKey()] = append(hosts[m.hostKey()], m)
		}
	}
	if len(hosts) == 0 || r.relay { // two peers that may use relays need no proof that they can connect
		return nil
	}
	share := max(1, maxReached/len(hosts))
	for _, all := range hosts {
		r.byWeight(all)
		out = append(out, all[:min(len(all), share)]...)
	}
	r.byWeight(out)
	return out
}

// targets returns the members to which the next round of offers goes. They are the deciders, the
// unreached members of a small group or the unreached delegates of a large group, and all members
// that an offer lists as unreachable. The group does not admit this newcomer until it has reached
// the members that an offer lists as unreachable.
func (r *reach) targets() []Member {
	others := r.members
	if len(others) > maxReached {
		others = r.delegates()
	}
	out := slices.Clone(r.deciders())
	add := func(m Member) {
		if !slices.ContainsFunc(out, func(o Member) bool { return o.ID == m.ID }) {
			out = append(out, m)
		}
	}
	for _, m := range others {
		if !r.met(m.ID) {
			add(m)
		}
	}
	for _, m := range r.unreachable(r.members) {
		add(m)
	}
	return out
}

// untried returns the targets to which no offer was made yet.
func (r *reach) untried() []Member {
	return slices.DeleteFunc(r.targets(), func(m Member) bool { return r.tried(m.ID) })
}

// unmet returns the other newcomers that this newcomer has not reached yet.
func (r *reach) unmet() (all []Member) {
	for id, c := range r.coming {
		if !r.met(id) && !slices.ContainsFunc(r.members, func(m Member) bool { return m.ID == id }) {
			all = append(all, c.Member)
		}
	}
	return all
}

// donors returns the members in the order in which they serve as donors of the state: members of
// this host, then members that this peer has reached, then the others. Within each of these three
// groups the order is by rank, so that newcomers ask the same members and share their snapshots. If
// spread is set, each newcomer has an order of its own.
func (r *reach) donors(spread bool) []Member {
	all := slices.Clone(r.members)
	if spread {
		r.byWeight(all)
	}
	class := func(m Member) int {
		switch {
		case m.Beside(r.self):
			return 0
		case r.met(m.ID):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(all, func(a, b Member) int { return cmp.Compare(class(a), class(b)) })
	return all
}

// byWeight sorts members by the weights that they have for this newcomer.
func (r *reach) byWeight(all []Member) {
	weights := make(map[ID]uint64, len(all))
	for _, m := range all {
		h := fnv.New64a()
		h.Write([]byte(m.ID))
		h.Write([]byte(r.self.ID)) // last, as IDs differ most at their ends
		weights[m.ID] = h.Sum64()
	}
	slices.SortFunc(all, func(a, b Member) int {
		return cmp.Or(cmp.Compare(weights[a.ID], weights[b.ID]), cmp.Compare(a.ID, b.ID))
	})
}

// hear records the other newcomers that a reply has named at the time now. It returns true if one
// of them is new.
func (r *reach) hear(coming []Member, now time.Time) (fresh bool) {
	for _, m := range coming {
		_, known := r.coming[m.ID]
		fresh = fresh || !known
		r.coming[m.ID] = introduced{m, now}
	}
	return fresh
}

// unreachable returns the peers in the list of with which this newcomer cannot connect, as far as
// it knows. No process listens at the addresses of such a peer, or no peer on the host of such a
// peer has answered. A silent peer on a host on which others answer is slow or stopped. It does not
// count as unreachable, because the members put a stopped peer out themselves.
func (r *reach) unreachable(of []Member) (out []Member) {
	hosts := make(map[string]bool)
	for _, m := range of {
		if r.met(m.ID) {
			hosts[m.hostKey()] = true
		}
	}
	for _, m := range of {
		if r.cutOff[m.ID] && (r.late[m.ID] == 0 || !hosts[m.hostKey()]) {
			out = append(out, m)
		}
	}
	return out
}

// known returns the members, in rank order, and the other newcomers, in the order of their IDs.
func (r *reach) known() []Member {
	all := slices.Clone(r.members)
	for _, id := range slices.Sorted(maps.Keys(r.coming)) {
		if !slices.ContainsFunc(r.members, func(m Member) bool { return m.ID == id }) {
			all = append(all, r.coming[id].Member)
		}
	}
	return all
}

// describe fills in the fields of an offer that depend on the reach. It drops newcomers that no
// reply has named for comingTerm.
func (r *reach) describe(o *offer, now time.Time) {
	maps.DeleteFunc(r.coming, func(_ ID, c introduced) bool { return now.Sub(c.at) >= comingTerm })
	all := r.known()
	for _, m := range all {
		if r.met(m.ID) && len(o.Met) < maxListed {
			o.Met = append(o.Met, m.ID)
		}
	}
	for _, m := range r.unreachable(all) {
		if len(o.Unreached) < maxListed {
			o.Unreached = append(o.Unreached, m.ID)
		}
	}
	if len(r.untried()) == 0 {
		o.Tried = r.version
	}
	// Members that cannot be reached may have other addresses by now, which only a reply with the
	// list of members contains.
	if len(o.Unreached) == 0 {
		o.Version = r.version
	}
}
