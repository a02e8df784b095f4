package elastic

import "time"

// A host that loses its network, in one direction or both, falls silent as a whole. Each member
// that suspects one member of such a host suspects all. Otherwise the others would put them out one
// after the other: each has few watchers, whose limits differ, and each view gives the rest new
// watchers. Members of one host hear each other, and a member that hears nobody else still sends.
// So only an answer to a request of the judging member shows that a host can be reached.

// hostMates returns the other members of the host of a member that is on another host than this
// one, as far as records of them exist.
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

// askHost asks the other members of the host of a watched member for an answer while that member is
// silent for more than half its limit, or owes an answer. The other half is the time that they have
// to answer, so shorter pauses of a host do not cost it its members.
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

// suspectHost suspects the other members of the host of a member that was just suspected, unless
// one of them has answered since they were asked. It suspects none while this process runs late, as
// their answers may be waiting here.
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

// askSuspectedHosts asks the members that are suspected with their hosts for an answer. This member
// may not watch them, and then it sends them no other heartbeats.
func (w *watcher) askSuspectedHosts() {
	for id, p := range w.members.peers {
		if p.withHost {
			w.heartbeats.send(id, true)
		}
	}
}
