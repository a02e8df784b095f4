package elastic

import (
	"slices"
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

// askFor probes a silent member, directly and through helpers.
func (w *watcher) askFor(id ID, p *peer) {
	w.heartbeats.send(id, true)
	if p.helped == nil {
		p.helped = make(map[ID]bool)
	}
	for _, h := range w.members.helpersFor(id) {
		if _, asked := p.helped[h]; !asked {
			p.helped[h] = false
		}
		w.out.send(h, probeMessage{About: id}.append(controlProbe, nil))
	}
}

// maxAskers bounds the number of members that get a message when a probed member has answered.
const maxAskers = 16

// receiveProbe handles a request for an indirect probe, or a helper's answer.
func (w *watcher) receiveProbe(from ID, kind controlKind, q probeMessage) {
	p := w.members.peerOf(q.About)
	// Probes are for members of the present view only.
	if p == nil || w.members.peerOf(from) == nil || q.About == from {
		return
	}
	if kind == controlProbe {
		if len(p.askers) < maxAskers && !slices.Contains(p.askers, from) {
			p.askers = append(p.askers, from)
		}
		w.heartbeats.send(q.About, true)
		// This reply shows that the helper has the request. A second reply follows when the probed
		// member has answered.
		w.out.send(from, probeMessage{About: q.About}.append(controlProbeReply, nil))
		return
	}
	// An unrequested reply must not vouch for a silent member.
	if _, asked := p.helped[from]; !asked {
		return
	}
	p.helped[from] = true
	if q.Heard {
		p.vouch(time.Now())
	}
}

// vouchFor reports to the members that asked for an indirect probe that the probed member has
// answered this peer. Other messages of the probed member do not count, because a member that
// receives nothing also sends them.
func (w *watcher) vouchFor(id ID, p *peer) {
	for _, asker := range p.askers {
		w.out.send(asker, probeMessage{About: id, Heard: true}.append(controlProbeReply, nil))
	}
	p.askers = nil
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

// regroup is the time for which a group without a quorum waits for further members after the first
// missing member has sent a message again. Without the wait the group would have a quorum at once
// and put out the members that return slightly later. regroup is longer than the period of
// heartbeats to suspects.
const regroup = 300 * time.Millisecond

// regrouping holds the suspects that have sent messages again while too few members are reached,
// until the suspicions of all of them are withdrawn together. It is pure: times come from the
// caller.
type regrouping struct {
	returned []ID
	until    time.Time // when the suspicions are withdrawn at the latest
}

// add postpones the withdrawal of a suspicion.
func (r *regrouping) add(id ID, now time.Time) {
	if len(r.returned) == 0 {
		r.until = now.Add(regroup)
	}
	r.returned = append(r.returned, id)
}

// due removes and returns the postponed suspicions if the wait is over, or if missing reports that
// no suspect is left. It calls missing, which visits all records, only while the wait lasts.
func (r *regrouping) due(now time.Time, missing func() bool) []ID {
	if len(r.returned) == 0 || now.Before(r.until) && missing() {
		return nil
	}
	due := r.returned
	r.returned = nil
	return due
}
