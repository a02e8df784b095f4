package elastic

import (
	"slices"
	"time"

	"github.com/elrun/elrun/elastic/member"
)

// peer is what a keeper knows of another process.
type peer struct {
	detector
	helped    map[ID]bool // members that were asked about it, and whether they answered
	askers    []ID        // members that asked about it, to be told of its next word
	suspected string      // the cause, in the words of the log; empty if it is trusted
	near      bool        // it is on this host
	down      bool        // its connection has ended and no other was made
	doubt     uint64      // epoch of a session that broke because of it; 0 if it has shown itself since
	beat      beat        // its last
	blamed    time.Time   // when this member last named it alone as what holds up a call
}

// leaves returns the word for its leaving by a view that it asked for. Its own word for that
// may be on the way still; then it counts that it held up this member.
func (p *peer) leaves(now time.Time) string {
	if p.beat.Stalled || !p.beat.Leaving && now.Sub(p.blamed) < makeWayAfter {
		return "stalled"
	}
	return "asked"
}

// unremarkable reports whether nothing is known of the member that could not be learned anew.
func (p *peer) unremarkable() bool {
	return p.suspected == "" && !p.down && p.doubt == 0 && len(p.askers) == 0 && !p.beat.Leaving && p.blamed.IsZero()
}

// firstTicks is after how many ticks the lower rank of a pair connects to the higher one,
// before the first view is agreed.
const firstTicks = 100

// watchReach is how many members to each side in rank order a member watches, and is
// watched by. With up to five members everybody watches everybody; with more the cost
// per member stays the same.
const watchReach = 2

// watched returns the members that this one watches and that watch it. The caller must not
// change them.
func (k *keeper) watched() []ID {
	if w := &k.around; w.epoch != k.view.Epoch {
		*w = watching{epoch: k.view.Epoch}
		for _, rank := range ranksAround(len(k.view.Members), k.view.Rank(k.ep.Self.ID), distances(watchReach)) {
			w.ids = append(w.ids, k.view.Members[rank].ID)
		}
	}
	return k.around.ids
}

// watching is whom a member of a view watches.
type watching struct {
	epoch uint64 // of the view
	ids   []ID   // in the order of the ring, from this member on
}

// distances returns 1 to most.
func distances(most int) []int {
	all := make([]int, most)
	for i := range all {
		all[i] = i + 1
	}
	return all
}

// ranksAround returns the ranks of a view of n members at some distances from one, which
// rise, on the ring of ranks: in its order, from self on. There are none if self is negative.
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

// peerOf returns what is known of another member of the view; nil for anybody else. In a
// large group nothing is known of most until they say something, so that what a member keeps
// does not grow with the members.
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

// isMember reports whether an ID is that of another member of the view.
func (k *keeper) isMember(id ID) bool {
	return k.peers[id] != nil || id != k.ep.Self.ID && k.view.Rank(id) >= 0
}

// happened takes in an event of the control network.
func (k *keeper) happened(e PeerEvent) {
	switch e.Kind {
	case PeerMessage:
		k.letter(e.Peer, e.Data) // a beat may say that this member is not heard
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
			k.beatTo(e.Peer, true) // connects again, or finds that nobody is there
		}
	}
}

// heard notes that a member lives.
func (k *keeper) heard(id ID, p *peer) {
	p.down = false
	p.word(time.Now(), p.beat.Deaf)
	if p.beat.Deaf {
		return // what is said to it does not arrive
	}
	p.helped = nil
	k.vouchFor(id, p)
	if p.suspected != "" {
		p.suspected = ""
		k.health.worse(time.Now()) // it may have been this member that was slow
		k.beatTo(id, false)        // it must know that it is heard again before what the machine says
		k.trust(id)
	}
	if p.doubt != 0 {
		epoch := p.doubt
		p.doubt = 0
		k.step(member.Renew{Epoch: epoch})
	}
}

// regroup is how long a group that was too small waits, after the first missing member
// is heard again, for the others that may come back at the same time: what is believed of
// them would put them out. It is longer than the time in which suspects are tried again.
const regroup = 300 * time.Millisecond

// trust takes a suspicion back, at once or, in a group that is too small, together with
// those of others.
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

// trustAll takes back the suspicions that have waited for it, when it is time or nobody
// else is missing.
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

// step gives the machine an event, if there is one.
func (k *keeper) step(e member.Event) {
	if k.m != nil {
		k.m.Step(e)
	}
}

// suspect says that a member cannot be reached; gone that nobody listens where it was.
func (k *keeper) suspect(id ID, p *peer, cause string, gone bool) {
	if p.suspected == "" {
		p.suspected = cause
		k.step(member.Suspect{Peer: member.ID(id), Gone: gone})
		k.beatTo(id, false) // it may hear this, and must know that it is not heard
	}
}

// notSent judges a member to which a message could not be sent: it is suspected if
// nobody is there, and otherwise silence decides.
func (k *keeper) notSent(f failed) {
	if p := k.peerOf(f.to); p != nil && f.gone() {
		k.suspect(f.to, p, "reset", true)
	}
}

// entering reports whether the first session is not entered yet. Until then connections
// are made between all members at once, and nobody is judged by silence.
func (k *keeper) entering() bool { return k.first != [32]byte{} }

// judgeAll looks at the watched members. Those that owe a word are asked for it, and
// those that do not answer suspected.
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
	if k.entering() && !(k.ticks%slowTicks == 0 && p.absent(now, state)) {
		return
	}
	switch p.judge(now, factor, state) {
	case probe:
		k.askFor(id, p)
	case suspected:
		if !k.wellHelped(p) && !k.health.worst() {
			k.health.worse(now) // this member may be the one that is not heard; it waits longer
			return
		}
		cause := "silent"
		if p.down || p.beat.Deaf || p.vouched.After(p.last) {
			cause = "unreachable" // it may live
		}
		k.ep.Network.Redial(id)
		k.suspect(id, p, cause, false)
	}
}

// stateOf returns what the process of a member does, if that is one of this host.
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

// near reports whether a member is known to be on this host: its launcher has started this
// process, too, and there.
func (k *keeper) near(m Member) bool {
	self := k.ep.Self
	return m.Launcher != "" && m.Launcher == self.Launcher && m.host() == self.host()
}

// beatAll says to those who watch this member that it lives, and what it does.
func (k *keeper) beatAll() { k.beatThose(func(*peer) bool { return true }) }

// beatInTurn is beatAll for when nothing is new. Suspects are tried again more rarely. So
// are those of this host told in a large group: the end of a process there is heard of without
// any beat, and a hundred of them would wake each other thousands of times a second.
func (k *keeper) beatInTurn() {
	seldom := k.ticks%slowTicks == 0
	if k.entering() && seldom {
		k.greetAll()
	}
	large := len(k.view.Members) > 2*watchReach+1
	k.beatThose(func(p *peer) bool { return seldom || p.suspected == "" && !(large && p.near) })
}

// beatThose says to some of those who watch this member that it lives. Before the first view
// is agreed the others are greeted instead.
func (k *keeper) beatThose(wanted func(*peer) bool) {
	for _, id := range k.watched() {
		if p := k.peerOf(id); wanted(p) && (p.spoke || p.near || !k.entering()) {
			k.beatTo(id, false)
		}
	}
}

// greetAll tells those of the first view who have not spoken yet of it, and asks for their
// answer, which tells of theirs; the launcher of this peer has told all that it has started here
// the same. Of two members the higher rank connects, as it does for data; the lower one does
// so later, where connections may be possible in its direction only.
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

// greetedAll is up to how many members each greets all others.
const greetedAll = 64

// greeted returns the distances on the ring of ranks of those that a member of n greets. In
// a large group these are 1, 2, 4, 8 and so on: that connects all, so where one was told
// another first view somebody notices.
func greeted(n int) (all []int) {
	if n <= greetedAll {
		return distances(n / 2)
	}
	for d := 1; d <= n/2; d *= 2 {
		all = append(all, d)
	}
	return all
}

// beatTo sends a beat.
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

// takeBeat takes in a member's beat.
func (k *keeper) takeBeat(from ID, t beat) {
	p := k.peerOf(from)
	if p == nil {
		// One of the job that is not in the view: one of the two has missed something. A
		// peer that joins asks those whom it knows as members.
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
