package elastic

import (
	"slices"
	"time"

	"github.com/elrun/elrun/elastic/member"
)

// peer is a keeper's knowledge about another member.
type peer struct {
	detector
	helped    map[ID]bool   // helpers that were asked for an indirect probe, and whether they answered
	askers    []ID          // members that asked for an indirect probe, to be told of the member's next message
	suspected string        // cause of the suspicion, as in the log; empty if the member is trusted
	exceeded  time.Duration // limit of silence at the suspicion; 0 if the cause is another
	near      bool          // it is on this host
	down      bool          // its connection has ended and no other was made
	doubt     uint64        // epoch of a session that broke because of it; 0 once it has been heard since
	beat      beat          // its last heartbeat
	blamed    time.Time     // when this member last named it as the only culprit of a stall
}

// leaves returns the reason, for the log, why the member left at its own request. A member that
// recently held up this one counts as stalled even if its own report has not arrived yet.
func (p *peer) leaves(now time.Time) string {
	if p.beat.Stalled || !p.beat.Leaving && now.Sub(p.blamed) < makeWayAfter {
		return "stalled"
	}
	return "asked"
}

// unremarkable reports whether the record of the member can be dropped: it holds nothing that could
// not be learned anew.
func (p *peer) unremarkable() bool {
	return p.suspected == "" && !p.down && p.doubt == 0 && len(p.askers) == 0 && !p.beat.Leaving && p.blamed.IsZero()
}

// Until the first view is agreed, the lower rank of a pair waits for firstTicks ticks before it
// connects to the higher rank.
const firstTicks = 100

// A member watches watchReach members on each side in rank order, and they watch it. In a group of
// up to five members all watch each other; in larger groups the cost per member is constant.
const watchReach = 2

// watched returns the members that this one watches and that watch it. The caller must not change
// the slice.
func (k *keeper) watched() []ID {
	if w := &k.around; w.epoch != k.view.Epoch {
		*w = watching{epoch: k.view.Epoch}
		for _, rank := range ranksAround(len(k.view.Members), k.view.Rank(k.ep.Self.ID), distances(watchReach)) {
			w.ids = append(w.ids, k.view.Members[rank].ID)
		}
	}
	return k.around.ids
}

// watching is the cached list of the members that a member of a view watches.
type watching struct {
	epoch uint64 // epoch of the view
	ids   []ID   // in the order of the ring of ranks, from this member on
}

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

// peerOf returns the record of another member of the view; nil for any other ID. A record is made
// when it is first needed: in a large group most members never have one, so a member's memory does
// not grow with the group.
func (k *keeper) peerOf(id ID) *peer {
	p := k.peers[id]
	if p == nil && id != k.ep.Self.ID {
		if rank := k.view.Rank(id); rank >= 0 {
			p = &peer{detector: detector{silence: newSilence(time.Now())}, near: k.near(k.view.Members[rank])}
			k.peers[id] = p
		}
	}
	return p
}

// isMember reports whether id is another member of the view.
func (k *keeper) isMember(id ID) bool {
	return k.peers[id] != nil || id != k.ep.Self.ID && k.view.Rank(id) >= 0
}

// happened handles an event of the control network.
func (k *keeper) happened(e PeerEvent) {
	switch e.Kind {
	case PeerMessage:
		k.letter(e.Peer, e.Data) // a heartbeat may report that this member is not heard
		if p := k.peers[e.Peer]; p != nil {
			k.heard(e.Peer, p)
		}
	case PeerUp:
		if p := k.peers[e.Peer]; p != nil {
			p.down = false
		}
	case PeerDown:
		if p := k.peerOf(e.Peer); p != nil {
			p.down = true
			k.beatTo(e.Peer, true) // connects again, or fails if no process listens there
		}
	}
}

// heard records a message of a member: the member lives. A suspicion is withdrawn.
func (k *keeper) heard(id ID, p *peer) {
	p.down = false
	p.word(time.Now(), p.beat.Deaf)
	if p.beat.Deaf {
		return // messages to this member do not arrive
	}
	p.helped = nil
	k.vouchFor(id, p)
	if p.suspected != "" {
		p.suspected, p.exceeded = "", 0
		k.health.worse(time.Now()) // this member may have been the late one
		k.beatTo(id, false)        // it must learn that it is heard again before it gets the machine's messages
		k.trust(id)
	}
	if p.doubt != 0 {
		epoch := p.doubt
		p.doubt = 0
		k.step(member.Renew{Epoch: epoch})
	}
}

// regroup is the time for which a group that was too small waits, after the first missing member is
// heard again, for others that return at the same time. Without the wait the remaining suspicions
// would put those members out. It is longer than the period at which suspects receive heartbeats.
const regroup = 300 * time.Millisecond

// trust withdraws a suspicion: at once or, in a group that is too small, together with others, see
// regroup.
func (k *keeper) trust(id ID) {
	if !k.lacking {
		k.step(member.Trust{Peer: member.ID(id)})
		return
	}
	if len(k.returned) == 0 {
		k.regrouped = time.Now().Add(regroup)
	}
	k.returned = append(k.returned, id)
}

// trustAll withdraws the postponed suspicions when regroup is over or no suspect is left.
func (k *keeper) trustAll(now time.Time) {
	if len(k.returned) == 0 {
		return
	}
	missing := false
	for _, p := range k.peers {
		missing = missing || p.suspected != ""
	}
	if missing && now.Before(k.regrouped) {
		return
	}
	for _, id := range k.returned {
		if p := k.peerOf(id); p != nil && p.suspected == "" {
			k.step(member.Trust{Peer: member.ID(id)})
		}
	}
	k.returned = nil
}

// step passes an event to the machine, if there is one.
func (k *keeper) step(e member.Event) {
	if k.m != nil {
		k.m.Step(e)
	}
}

// suspect records that a member cannot be reached; gone: no process listens at its addresses.
func (k *keeper) suspect(id ID, p *peer, cause string, gone bool) {
	if p.suspected == "" {
		p.suspected = cause
		k.step(member.Suspect{Peer: member.ID(id), Gone: gone})
		k.beatTo(id, false) // it may receive this heartbeat, and must learn that it is not heard
	}
}

// notSent handles a message that could not be sent. Its receiver is suspected if it is certainly
// gone; otherwise its silence decides.
func (k *keeper) notSent(f failed) {
	if p := k.peerOf(f.to); p != nil && f.gone() {
		k.suspect(f.to, p, "reset", true)
	}
}

// entering reports whether the first session has not been entered yet. Until then many pairs of
// members connect at once, and silence does not count.
func (k *keeper) entering() bool { return k.first != [32]byte{} }

// judgeAll judges the watched members: it probes a member that is nearly overdue, and suspects a
// member that does not answer. It also reports long-silent suspects to OnSuspect.
func (k *keeper) judgeAll(now time.Time) {
	for _, id := range k.watched() {
		if p := k.peerOf(id); p.suspected == "" {
			k.look(id, p, now)
		}
	}
	if k.cfg.OnSuspect == nil || k.ticks%slowTicks != 0 {
		return
	}
	for id, p := range k.peers {
		if p.suspected == "silent" || p.suspected == "unreachable" {
			k.cfg.OnSuspect(id)
		}
	}
}

// look judges one member.
func (k *keeper) look(id ID, p *peer, now time.Time) {
	factor, state := k.health.factor(now), func() ProcessState { return k.stateOf(id) }
	// Silence does not count while the first session is entered, except for absent members.
	if k.entering() && !(k.ticks%slowTicks == 0 && p.absent(now, state)) {
		return
	}
	switch p.judge(now, factor, state) {
	case probe:
		k.askFor(id, p)
	case suspected:
		// Before a suspicion a helper must show that this member is heard, unless no helper can be
		// relied on.
		if !k.wellHelped(p) && !k.health.worst() {
			k.health.worse(now) // the fault may be this member's own; its limits grow
			return
		}
		cause := "silent"
		if p.down || p.beat.Deaf || p.vouched.After(p.last) {
			cause = "unreachable" // it may live
		}
		k.ep.Network.Redial(id)
		p.exceeded = p.limit(factor)
		k.suspect(id, p, cause, false)
	}
}

// stateOf returns the state of a member's process, if that is on this host.
func (k *keeper) stateOf(id ID) ProcessState {
	rank := k.view.Rank(id)
	if k.cfg.Inspect == nil || rank < 0 {
		return ProcessUnknown
	}
	m := k.view.Members[rank]
	if m.Process == "" || !k.near(m) {
		return ProcessUnknown
	}
	return k.cfg.Inspect(m)
}

// near reports whether a member is known to be on this host: one launcher has started both
// processes, and on one host.
func (k *keeper) near(m Member) bool {
	self := k.ep.Self
	return m.Launcher != "" && m.Launcher == self.Launcher && m.host() == self.host()
}

// beatAll sends a heartbeat, with this member's new state, to the members that watch this one.
func (k *keeper) beatAll() { k.beatThose(func(*peer) bool { return true }) }

// beatInTurn sends the periodic heartbeats. Suspects receive them more rarely. So do members of
// this host in a large group: the end of a process of this host is noticed without heartbeats, and
// a hundred processes would wake each other thousands of times a second.
func (k *keeper) beatInTurn() {
	seldom := k.ticks%slowTicks == 0
	if k.entering() && seldom {
		k.greetAll()
	}
	k.beatThose(func(p *peer) bool { return seldom || p.suspected == "" && !(k.crowded() && p.near) })
}

// crowded reports whether the group is so large that members do not all watch each other.
func (k *keeper) crowded() bool { return len(k.view.Members) > 2*watchReach+1 }

// beatThose sends a heartbeat to the watching members for which the function wanted returns true.
// Before the first view is agreed, it skips members that have not spoken yet: greetAll sends to
// them.
func (k *keeper) beatThose(wanted func(*peer) bool) {
	for _, id := range k.watched() {
		if p := k.peerOf(id); wanted(p) && (p.spoke || p.near || !k.entering()) {
			k.beatTo(id, false)
		}
	}
}

// greetAll announces this member's first view to members that have not spoken yet, and requests a
// heartbeat with their first view. It skips members of this host, as one launcher has given them
// the same view. Of each pair the higher rank connects, as it does for data; the lower rank follows
// after firstTicks, as connections may be possible in its direction only.
func (k *keeper) greetAll() {
	n, self := len(k.view.Members), k.view.Rank(k.ep.Self.ID)
	for _, rank := range ranksAround(n, self, greeted(n)) {
		m := k.view.Members[rank]
		p := k.peers[m.ID]
		if k.near(m) || p != nil && p.spoke || rank > self && k.ticks <= firstTicks {
			continue
		}
		k.beatTo(m.ID, true)
	}
}

// greetedAll is the number of members up to which each member greets all others.
const greetedAll = 64

// greeted returns the distances, on the ring of ranks, of the members that a member of n greets. In
// a large group they are 1, 2, 4, 8 and so on. The pairs connect the whole group, so if first views
// differ at least one pair detects it.
func greeted(n int) (all []int) {
	if n <= greetedAll {
		return distances(n / 2)
	}
	for d := 1; d <= n/2; d *= 2 {
		all = append(all, d)
	}
	return all
}

// beatTo sends a heartbeat; reply requests one in return.
func (k *keeper) beatTo(id ID, reply bool) {
	k.mu.Lock()
	t := k.doing
	k.mu.Unlock()
	t.Reply, t.First, t.Sole, t.Stalled = reply, k.first, k.sole.on, k.stalled
	if p := k.peerOf(id); p != nil {
		t.Deaf = !k.entering() && p.overdue(k.ticked, k.health.factor(k.ticked))
	}
	k.out.send(id, t.append(nil))
}

// takeBeat handles a heartbeat.
func (k *keeper) takeBeat(from ID, t beat) {
	p := k.peerOf(from)
	if p == nil {
		// The sender belongs to the job but not to this view, so one of the two has missed a view.
		// A newcomer only asks peers that it knows as members.
		if k.view.Epoch > 0 {
			k.step(member.Met{Peer: member.ID(from)})
		}
		return
	}
	p.beat = t
	if t.Reply {
		k.beatTo(from, false)
	}
	if t.First != [32]byte{} && k.first != [32]byte{} && t.First != k.first {
		k.set(func(s *standing) { s.wrong = errFirst(from) })
	}
	k.sole.heard(k)
}
