package elastic

import (
	"time"

	"github.com/elrun/elrun/elastic/member"
)

// watcher judges which members can be reached. It records their messages, probes members whose
// silence nearly reaches the limit, and passes suspicions and their withdrawal to the membership
// machine. The driver's goroutine owns it.
type watcher struct {
	cfg        *Config // Inspect and OnSuspect
	network    Network
	members    *roster
	clock      *tickClock
	heartbeats *heartbeatSender
	out        *sendQueues        // for probes
	step       func(member.Event) // passes an event to the membership machine

	regrouping regrouping // suspects that have sent messages again while too few members are reached
}

// received records a message of a member: the member lives. A suspicion is withdrawn.
func (w *watcher) received(id ID) {
	p := w.members.peers[id]
	if p == nil {
		return // no member, or a member that needs no record
	}
	p.down = false
	p.word(time.Now(), p.heartbeat.Deaf)
	if p.heartbeat.Deaf {
		return // the member reports that it receives nothing from this peer
	}
	p.helped = nil
	if p.suspected != "" && !p.withHost {
		p.suspected, p.exceeded = "", 0
		w.clock.health.worse(time.Now()) // the suspicion was wrong, perhaps because this peer was late
		w.heartbeats.send(id, false)     // sent before the machine's messages: it reports to the member that this peer hears it again
		w.unsuspect(id)
	}
	if p.brokeEpoch != 0 {
		epoch := p.brokeEpoch
		p.brokeEpoch = 0
		w.step(member.Renew{Epoch: epoch})
	}
}

// answered records that a member has answered a heartbeat of this peer: messages pass in both
// directions.
func (w *watcher) answered(id ID, p *peer) {
	p.answered, p.withHost = time.Now(), false
	w.vouchFor(id, p)
}

// connected records that a connection with a member exists.
func (w *watcher) connected(id ID) {
	if p := w.members.peers[id]; p != nil {
		p.down = false
	}
}

// disconnected records that the connection with a member has ended. It sends a heartbeat, which
// makes a new connection, or fails if the member's process has ended.
func (w *watcher) disconnected(id ID) {
	if p := w.members.peerOf(id); p != nil {
		p.down = true
		w.heartbeats.send(id, true)
	}
}

// requireAnswer requests a heartbeat from the member that an error of the session of an epoch
// blames. When a message of the member arrives, the watcher passes a Renew to the machine.
func (w *watcher) requireAnswer(id ID, p *peer, epoch uint64) {
	p.brokeEpoch = epoch
	w.heartbeats.send(id, true)
}

// dead records that the process of a member has certainly ended.
func (w *watcher) dead(id ID) {
	if p := w.members.peerOf(id); p != nil {
		p.suspected = "exit"
	}
	w.step(member.Dead{Peer: member.ID(id)})
}

// unsuspect withdraws a suspicion: at once or, in a group that is too small, together with others,
// see regrouping.
func (w *watcher) unsuspect(id ID) {
	if w.members.quorumLost {
		w.regrouping.add(id, time.Now())
		return
	}
	w.step(member.Trust{Peer: member.ID(id)})
}

// unsuspectAll withdraws the postponed suspicions that are due.
func (w *watcher) unsuspectAll(now time.Time) {
	for _, id := range w.regrouping.due(now, w.members.suspects) {
		if p := w.members.peerOf(id); p != nil && p.suspected == "" {
			w.step(member.Trust{Peer: member.ID(id)})
		}
	}
}

// suspect records that a member cannot be reached. The argument gone means that no process listens
// at the member's addresses.
func (w *watcher) suspect(id ID, p *peer, cause string, gone bool) {
	if p.suspected == "" {
		p.suspected = cause
		w.step(member.Suspect{Peer: member.ID(id), Gone: gone})
		w.heartbeats.send(id, false) // if the member receives this heartbeat, it reports to the member that this peer hears nothing from it
	}
}

// notSent handles a message that could not be sent. The receiver is suspected at once if its
// process has certainly ended; otherwise only its silence counts.
func (w *watcher) notSent(f failed) {
	if p := w.members.peerOf(f.to); p != nil && f.gone() {
		w.suspect(f.to, p, "reset", true)
	}
}

// judgeAll judges the watched members: it probes a member whose silence nearly reaches the limit,
// and suspects a member that does not answer. It also reports silent and unreachable suspects to
// OnSuspect.
func (w *watcher) judgeAll(now time.Time) {
	for _, id := range w.members.watched() {
		if p := w.members.peerOf(id); p.suspected == "" {
			w.judge(id, p, now)
		}
	}
	if w.clock.ticks%slowTicks != 0 {
		return
	}
	w.askSuspectedHosts()
	if w.cfg.OnSuspect == nil {
		return
	}
	for id, p := range w.members.peers {
		if p.suspected == "silent" || p.suspected == "unreachable" {
			w.cfg.OnSuspect(id)
		}
	}
}

// judge judges one member.
func (w *watcher) judge(id ID, p *peer, now time.Time) {
	factor, state := w.clock.health.factor(now), func() ProcessState { return w.stateOf(id) }
	// While the members enter the first session, only absent members are judged.
	if w.members.entering() && !(w.clock.ticks%slowTicks == 0 && p.absent(now, state)) {
		return
	}
	found := p.judge(now, factor, state)
	w.askHost(id, p, now)
	switch found {
	case probe:
		w.askFor(id, p)
	case suspected:
		// Before a suspicion a helper must show that messages of this member arrive, unless this
		// member hears no helper.
		if !w.members.wellHelped(p) && !w.clock.health.worst() {
			w.clock.health.worse(now) // this member itself may be cut off or late, so its limits grow
			return
		}
		cause := "silent"
		if p.down || p.heartbeat.Deaf || p.vouched.After(p.last) {
			cause = "unreachable" // the member may live
		}
		w.network.Redial(id)
		p.exceeded = p.limit(factor)
		w.suspect(id, p, cause, false)
		w.suspectHost(id, p, now)
	}
}

// stateOf returns the state of a member's process, or ProcessUnknown if the process is on another
// host.
func (w *watcher) stateOf(id ID) ProcessState {
	rank := w.members.view.Rank(id)
	if w.cfg.Inspect == nil || rank < 0 {
		return ProcessUnknown
	}
	m := w.members.view.Members[rank]
	if m.Process == "" || !w.members.near(m) {
		return ProcessUnknown
	}
	return w.cfg.Inspect(m)
}
