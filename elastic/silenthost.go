package elastic

import "time"

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

// askHost requests answers from the other members on the host of a watched member. It does so while
// the watched member has been silent for more than half of its limit, or has not answered a probe.
// The asked members can answer until the limit is reached, so a shorter pause of the host does not
// put its members out.
func (w *watcher) askHost(id ID, p *peer, now time.Time) {
	if p.asked.IsZero() && now.Sub(p.last) <= p.limit(w.clock.health.factor(now))/2 {
		p.hostAsked = time.Time{}
		return
	}
	if !p.hostAsked.IsZero() && w.clock.ticks%slowTicks != 0 {
		return
	}
	if p.hostAsked.IsZero() {
		p.hostAsked = now
	}
	for _, mate := range w.members.hostMates(id) {
		w.heartbeats.send(mate, true)
	}
}

// suspectHost suspects the other members of the host of a newly suspected member, unless one of
// them has answered since askHost asked them. It suspects none while this process runs late,
// because their answers may be waiting in a queue of this process.
func (w *watcher) suspectHost(id ID, p *peer, now time.Time) {
	if w.clock.health.factor(now) > 1 {
		return
	}
	mates := w.members.hostMates(id)
	for _, mate := range mates {
		if w.members.peers[mate].answered.After(p.hostAsked) {
			return
		}
	}
	for _, mate := range mates {
		if m := w.members.peers[mate]; m.suspected == "" {
			m.withHost, m.exceeded = true, p.exceeded
			w.suspect(mate, m, p.suspected, false)
		}
	}
}

// askSuspectedHosts requests answers from the members that are suspected with their hosts, because
// this member sends no other heartbeats to members that it does not watch.
func (w *watcher) askSuspectedHosts() {
	for id, p := range w.members.peers {
		if p.withHost {
			w.heartbeats.send(id, true)
		}
	}
}
