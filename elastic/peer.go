package elastic

import (
	"slices"
	"time"

	"github.com/elrun/elrun/elastic/member"
)

// peer is a driver's knowledge about another member.
type peer struct {
	detector
	helped     map[ID]bool   // helpers that were asked for an indirect probe, and whether they answered
	askers     []ID          // members that asked for an indirect probe, to be told of the member's next message
	suspected  string        // cause of the suspicion, as in the log; empty if the member is trusted
	exceeded   time.Duration // limit of silence at the suspicion; 0 if the cause is another
	near       bool          // it is on this host
	down       bool          // its connection has ended and no other was made
	brokeEpoch uint64        // epoch of a session that broke because of it; 0 once it has been heard since
	heartbeat  heartbeat     // its last heartbeat
	blamed     time.Time     // when this member last named it as the only culprit of a stall
}

// leaves returns the reason, for the log, why the member left at its own request. A member that
// recently held up this one counts as stalled even if its own report has not arrived yet.
func (p *peer) leaves(now time.Time) string {
	if p.heartbeat.Stalled || !p.heartbeat.Leaving && now.Sub(p.blamed) < makeWayAfter {
		return "stalled"
	}
	return "asked"
}

// unremarkable reports whether the record of the member can be dropped: it holds nothing that could
// not be learned anew.
func (p *peer) unremarkable() bool {
	return p.suspected == "" && !p.down && p.brokeEpoch == 0 && len(p.askers) == 0 && !p.heartbeat.Leaving && p.blamed.IsZero()
}

// A member watches watchReach members on each side in rank order, and they watch it. In a group of
// up to five members all watch each other; in larger groups the cost per member is constant.
const watchReach = 2

// distances returns 1, 2, ..., most.
func distances(most int) []int {
	all := make([]int, most)
	for i := range all {
		all[i] = i + 1
	}
	return all
}

// ranksAround returns the ranks that are at one of the given distances from the rank self, to
// either side, on a ring of n ranks. distances must ascend. The ranks are in the order of the ring,
// from self on. There are none if self is negative.
func ranksAround(n, self int, distances []int) []int {
	var after, before []int
	for _, d := range distances {
		if self < 0 || 2*d > n {
			break
		}
		if after = append(after, (self+d)%n); 2*d < n {
			before = append(before, (self-d+n)%n)
		}
	}
	slices.Reverse(before)
	return append(after, before...)
}

// happened handles an event of the control network.
func (d *driver) happened(e PeerEvent) {
	switch e.Kind {
	case PeerMessage:
		d.receive(e.Peer, e.Data) // a heartbeat may report that this member is not heard
		if p := d.peers[e.Peer]; p != nil {
			d.heard(e.Peer, p)
		}
	case PeerUp:
		if p := d.peers[e.Peer]; p != nil {
			p.down = false
		}
	case PeerDown:
		if p := d.peerOf(e.Peer); p != nil {
			p.down = true
			d.heartbeats.send(e.Peer, true) // connects again, or fails if no process listens there
		}
	}
}

// heard records a message of a member: the member lives. A suspicion is withdrawn.
func (d *driver) heard(id ID, p *peer) {
	p.down = false
	p.word(time.Now(), p.heartbeat.Deaf)
	if p.heartbeat.Deaf {
		return // messages to this member do not arrive
	}
	p.helped = nil
	d.vouchFor(id, p)
	if p.suspected != "" {
		p.suspected, p.exceeded = "", 0
		d.health.worse(time.Now())   // this member may have been the late one
		d.heartbeats.send(id, false) // it must learn that it is heard again before it gets the machine's messages
		d.trust(id)
	}
	if p.brokeEpoch != 0 {
		epoch := p.brokeEpoch
		p.brokeEpoch = 0
		d.step(member.Renew{Epoch: epoch})
	}
}

// trust withdraws a suspicion: at once or, in a group that is too small, together with others, see
// regrouping.
func (d *driver) trust(id ID) {
	if d.quorumLost {
		d.regrouping.add(id, time.Now())
		return
	}
	d.step(member.Trust{Peer: member.ID(id)})
}

// trustAll withdraws the postponed suspicions that are due.
func (d *driver) trustAll(now time.Time) {
	for _, id := range d.regrouping.due(now, d.suspects) {
		if p := d.peerOf(id); p != nil && p.suspected == "" {
			d.step(member.Trust{Peer: member.ID(id)})
		}
	}
}

// step passes an event to the machine, if there is one.
func (d *driver) step(e member.Event) {
	if d.m != nil {
		d.m.Step(e)
	}
}

// suspect records that a member cannot be reached; gone: no process listens at its addresses.
func (d *driver) suspect(id ID, p *peer, cause string, gone bool) {
	if p.suspected == "" {
		p.suspected = cause
		d.step(member.Suspect{Peer: member.ID(id), Gone: gone})
		d.heartbeats.send(id, false) // it may receive this heartbeat, and must learn that it is not heard
	}
}

// notSent handles a message that could not be sent. Its receiver is suspected if it is certainly
// gone; otherwise its silence decides.
func (d *driver) notSent(f failed) {
	if p := d.peerOf(f.to); p != nil && f.gone() {
		d.suspect(f.to, p, "reset", true)
	}
}

// judgeAll judges the watched members: it probes a member that is nearly overdue, and suspects a
// member that does not answer. It also reports long-silent suspects to OnSuspect.
func (d *driver) judgeAll(now time.Time) {
	for _, id := range d.watched() {
		if p := d.peerOf(id); p.suspected == "" {
			d.look(id, p, now)
		}
	}
	if d.cfg.OnSuspect == nil || d.ticks%slowTicks != 0 {
		return
	}
	for id, p := range d.peers {
		if p.suspected == "silent" || p.suspected == "unreachable" {
			d.cfg.OnSuspect(id)
		}
	}
}

// look judges one member.
func (d *driver) look(id ID, p *peer, now time.Time) {
	factor, state := d.health.factor(now), func() ProcessState { return d.stateOf(id) }
	// Silence does not count while the first session is entered, except for absent members.
	if d.entering() && !(d.ticks%slowTicks == 0 && p.absent(now, state)) {
		return
	}
	switch p.judge(now, factor, state) {
	case probe:
		d.askFor(id, p)
	case suspected:
		// Before a suspicion a helper must show that this member is heard, unless no helper can be
		// relied on.
		if !d.wellHelped(p) && !d.health.worst() {
			d.health.worse(now) // the fault may be this member's own; its limits grow
			return
		}
		cause := "silent"
		if p.down || p.heartbeat.Deaf || p.vouched.After(p.last) {
			cause = "unreachable" // it may live
		}
		d.ep.Network.Redial(id)
		p.exceeded = p.limit(factor)
		d.suspect(id, p, cause, false)
	}
}

// stateOf returns the state of a member's process, if that is on this host.
func (d *driver) stateOf(id ID) ProcessState {
	rank := d.view.Rank(id)
	if d.cfg.Inspect == nil || rank < 0 {
		return ProcessUnknown
	}
	m := d.view.Members[rank]
	if m.Process == "" || !d.near(m) {
		return ProcessUnknown
	}
	return d.cfg.Inspect(m)
}

// receiveHeartbeat handles a heartbeat.
func (d *driver) receiveHeartbeat(from ID, t heartbeat) {
	p := d.peerOf(from)
	if p == nil {
		// The sender belongs to the job but not to this view, so one of the two has missed a view.
		// A newcomer only asks peers that it knows as members.
		if d.view.Epoch > 0 {
			d.step(member.Met{Peer: member.ID(from)})
		}
		return
	}
	p.heartbeat = t
	if t.Reply {
		d.heartbeats.send(from, false)
	}
	if t.First != [32]byte{} && d.first != [32]byte{} && t.First != d.first {
		d.status.set(func(s *status) { s.wrong = errFirst(from) })
	}
	d.launcher.confirm(&d.roster)
}
