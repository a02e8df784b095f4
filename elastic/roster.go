package elastic

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/elastic/member"
)

// roster is the present view with the records of its members, as one member keeps them. The
// driver's goroutine owns it.
type roster struct {
	self   Member
	view   View         // the machine's present view, see replace; epoch 0 has no members
	peers  map[ID]*peer // records of members; a member without one is as peerOf creates it
	around []ID         // the members that this one watches
	first  [32]byte     // hash of the first view until it is agreed; zero afterwards

	quorumLost bool // too few members of the view can be reached
}

// replace makes v the present view. The present view and v may have the same epoch: if this
// member's first view differs from the first view of the others, this member may receive a view of
// the others with the epoch of its own view.
func (r *roster) replace(v View) {
	if v.ring == nil {
		v.ring = newWatchRing(v.Hosts())
	}
	before := r.around
	r.view, r.around = v, nil
	for _, rank := range v.ring.around(v.Rank(r.self.ID)) {
		id := v.Members[rank].ID
		r.around = append(r.around, id)
		// A member that was not watched sent messages rarely, so the pauses between these messages
		// do not predict how long it may be silent now.
		if p := r.peers[id]; p != nil && !slices.Contains(before, id) {
			p.restart(time.Now())
		}
	}
}

// entering reports whether the first session has not been entered yet. Until then many pairs of
// members connect at once, and silence does not count.
func (r *roster) entering() bool { return r.first != [32]byte{} }

// agreed records that the members have agreed on the first view, because this member enters a
// session. Pauses before that time do not predict later pauses.
func (r *roster) agreed() {
	if !r.entering() {
		return
	}
	r.first = [32]byte{}
	for _, p := range r.peers {
		p.restart(time.Now())
	}
}

// watched returns the members that this one watches and that watch it, in the order of the ring of
// the view, from this member on. The caller must not change the slice.
func (r *roster) watched() []ID { return r.around }

// crowded reports whether the group is so large that members do not all watch each other.
func (r *roster) crowded() bool { return len(r.view.Members) > watchedAll }

// peerOf returns the record of another member of the view; nil for any other ID. A record is made
// when it is first needed: in a large group most members never have one, so a member's memory does
// not grow with the group.
func (r *roster) peerOf(id ID) *peer {
	p := r.peers[id]
	if p == nil && id != r.self.ID {
		if rank := r.view.Rank(id); rank >= 0 {
			p = &peer{detector: detector{silence: newSilence(time.Now())}, near: r.near(r.view.Members[rank])}
			r.peers[id] = p
		}
	}
	return p
}

// isMember reports whether id is another member of the view.
func (r *roster) isMember(id ID) bool {
	return r.peers[id] != nil || id != r.self.ID && r.view.Rank(id) >= 0
}

// near reports whether a member is known to be on this host: one launcher has started both
// processes, and on one host.
func (r *roster) near(m Member) bool {
	self := r.self
	return m.Launcher != "" && m.Launcher == self.Launcher && m.host() == self.host()
}

// hears reports whether another member has sent a message, is not suspected, and has answered all
// probes.
func (r *roster) hears(id ID) bool {
	p := r.peers[id]
	return p != nil && p.spoke && p.suspected == "" && p.asked.IsZero()
}

// If a host loses its network, in one direction or both, all its members become unreachable. So a
// member that suspects one member of such a host suspects all of them. Otherwise the members of the
// host would be put out one by one: each has few watchers, whose limits differ, and each view gives
// new watchers to the members that remain. Members of one host hear each other, and a member that
// receives nothing from other hosts still sends. So only an answer to a request of the suspecting
// member shows that a host can be reached.

// hostMates returns the other members on the host of the member id, as far as records of them
// exist. It returns nil if that host is this member's host.
func (r *roster) hostMates(id ID) (ids []ID) {
	rank := r.view.Rank(id)
	if rank < 0 || r.view.Members[rank].Beside(r.self) {
		return nil
	}
	for _, m := range r.view.Members {
		if m.ID != id && m.Beside(r.view.Members[rank]) && r.peers[m.ID] != nil {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// helpersFor chooses the helpers for an indirect probe of the member id from the members that this
// one watches and hears. Members of other hosts come first, because a member of this host uses the
// same network as this member. Among them the member nearest to id on the ring comes first.
func (r *roster) helpersFor(id ID) []ID {
	ids := slices.DeleteFunc(slices.Clone(r.watched()), func(h ID) bool { return h == id || !r.hears(h) })
	at := r.view.Rank(id)
	cost := func(h ID) int {
		distance := r.view.ring.distance(r.view.Rank(h), at)
		if r.peers[h].near {
			distance += len(r.view.Members)
		}
		return distance
	}
	slices.SortStableFunc(ids, func(a, b ID) int { return cmp.Compare(cost(a), cost(b)) })
	return ids[:min(len(ids), helpers)]
}

// wellHelped reports whether the probed member itself is the likely cause of the missing answer: a
// helper has answered, or this member hears no helper. If helpers that this member hears do not
// answer either, then messages of this member are lost, or it does not process the answers in time.
func (r *roster) wellHelped(p *peer) bool {
	none := true
	for h, answered := range p.helped {
		if answered {
			return true
		}
		none = none && !r.hears(h)
	}
	return none
}

// suspects reports whether this member suspects another one.
func (r *roster) suspects() bool {
	for _, p := range r.peers {
		if p.suspected != "" {
			return true
		}
	}
	return false
}

// present reports whether a member can be reached and has not asked to leave, as far as this member
// knows.
func (r *roster) present(id ID) bool {
	p := r.peerOf(id)
	return p != nil && p.suspected == "" && !p.down && !p.heartbeat.Leaving
}

// staying counts the members that are not about to leave or to be put out.
func (r *roster) staying() int {
	n := 0
	for _, m := range r.view.Members {
		p := r.peers[m.ID]
		if p == nil || p.suspected == "" && !p.heartbeat.Leaving {
			n++ // this member itself counts: for it p is nil
		}
	}
	return n
}

// knowMistake reports whether the members that watch this one know of a mistake, or are certainly
// gone.
func (r *roster) knowMistake() bool {
	return !slices.ContainsFunc(r.watched(), func(id ID) bool {
		p := r.peerOf(id)
		return p.heartbeat.Mistake == "" && p.suspected != "exit" && p.suspected != "reset"
	})
}

// author classifies the sender of a control message.
func (r *roster) author(id ID) author {
	if r.isMember(id) {
		return ofView
	}
	return outsider
}

// shorten replaces in a text the IDs of the members of the present view and of the view other by
// their short forms.
func (r *roster) shorten(text string, other member.View) string {
	for _, m := range r.view.Members {
		text = strings.ReplaceAll(text, string(m.ID), m.ID.Short())
	}
	for _, m := range other.Members {
		text = strings.ReplaceAll(text, string(m.ID), ID(m.ID).Short())
	}
	return text
}

// peer is a driver's record of another member.
type peer struct {
	detector
	helped     map[ID]bool   // helpers that were asked for an indirect probe, and whether they answered
	askers     []ID          // members that asked for an indirect probe, and get a message when the member has answered
	suspected  string        // cause of the suspicion, as in the log; empty if the member is trusted
	exceeded   time.Duration // limit of silence when the suspicion began; 0 if the cause is not silence
	near       bool          // the member is on this host
	answered   time.Time     // when the member last answered a request of this peer
	hostAsked  time.Time     // since when this peer asks the other members of the member's host, see askHost; zero if it does not ask
	withHost   bool          // suspected because no member of its host answers; only an answer to a request withdraws the suspicion
	down       bool          // the connection with the member has ended and no other was made
	brokeEpoch uint64        // epoch of a session that broke because of the member; 0 once a later message of the member has arrived
	heartbeat  heartbeat     // last heartbeat of the member
	blamed     time.Time     // when this peer last named the member as the only culprit of a stall
}

// leaves returns, for the log, why the member left; "" if this peer does not know. A member for
// which this peer recently waited counts as stalled even if the member's own report has not arrived
// yet.
func (p *peer) leaves(now time.Time) string {
	switch {
	case p.heartbeat.stepsDown() != "":
		return "stepped down: " + p.heartbeat.stepsDown()
	case p.heartbeat.Stalled || !p.heartbeat.Leaving && now.Sub(p.blamed) < makeWayAfter:
		return "stalled"
	case p.heartbeat.Ended:
		return leftClosed
	case p.heartbeat.Failed:
		return leftFailed
	case p.heartbeat.Leaving:
		return leftAsked
	}
	return ""
}

// unremarkable reports whether the record of the member can be dropped, because later messages can
// restore all that it holds.
func (p *peer) unremarkable() bool {
	return p.suspected == "" && !p.down && p.brokeEpoch == 0 && len(p.askers) == 0 && !p.heartbeat.Leaving && p.blamed.IsZero()
}
