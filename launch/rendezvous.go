package launch

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/ticket"
)

// rendezvous collects the hellos of the peers and decides the answers: which peers form the first
// view, and how later ones join. It does no I/O and is not safe for concurrent use.
//
//	waiting --all said hello--> started: all get the first view
//	   |                           late peers, and all peers of a launcher that joins a
//	   |                           running job, get contacts; every death is reported to all
//	   |                           no member lives (reform.go): waiting peers begin again
//	   +--one ended--> broken: all that have said hello, or say it later, have to give up
//
// A program that never says hello is not a peer and needs no answer. If no program says hello, the
// rendezvous stays in waiting, and the programs run to their ends.
type rendezvous struct {
	order startOrder // the part of the answer to hello that is the same for all peers
	// peers has the processes of this launcher by local index, also those that have ended.
	peers map[int]*localPeer
	// started is set once the first view is fixed, or from the start if the launcher joins a job.
	started bool
	broken  string // why the group cannot be formed
	latest  known  // the latest reported state of the group

	// Fields for reform.go.
	foreign   bool // a peer of another launcher has been a member
	finished  bool // a member has ended with status 0, or the job fails by a mistake of its program
	reforming bool // no member is alive, and some running peers have not said hello

	dead     []elastic.ID                     // IDs of peers that ended after the start
	signPass func(newcomer elastic.ID) []byte // makes passes; nil if another launcher began the job
	names    map[string]int                   // local index by short ID, ended processes included
}

// localPeer is one local process.
type localPeer struct {
	// ids are the IDs with which the process has said hello. The last one is its present ID.
	ids    []elastic.ID
	member elastic.Member
	// announced is the number of ids whose deaths were announced.
	announced int
	// answered is set once the process has got its answer to hello.
	answered bool
	ended    bool

	// inView is set once the process was in a view under its present ID.
	inView bool
	// further is set if the program is not the first one in its process group.
	further bool
	// released is set once the process was told that the job is finished.
	released bool
}

// peerMessage is a message to one peer.
type peerMessage struct {
	to  int
	msg message
}

// newRendezvous returns a rendezvous of n peers. If joining is set, because the launcher joins a
// running job, the peers do not wait for each other.
func newRendezvous(n int, order startOrder, joining bool) *rendezvous {
	r := &rendezvous{order: order, peers: make(map[int]*localPeer), started: joining, names: make(map[string]int)}
	r.latest.Members, r.order.Contacts = order.Contacts, nil
	// Only the launcher that began the job has the secret, and so can sign passes.
	if len(order.Secret) > 0 {
		signer := ticket.SignerOf(order.Secret)
		r.order.Root = signer.ID
		r.signPass = func(newcomer elastic.ID) []byte {
			c := signer.Claim(string(newcomer))
			return c.Signature[:]
		}
	}
	r.expectAll(n)
	return r
}

// expectAll records that peers 0 to n-1 are about to be started, and no others.
func (r *rendezvous) expectAll(n int) {
	clear(r.peers)
	for i := range n {
		r.expect(i)
	}
}

// expect records that a process is started as peer i, also for a restart.
func (r *rendezvous) expect(i int) { r.peers[i] = &localPeer{} }

// hello records that peer i wants to join as self, or has the new identity self. It returns the
// messages to send now.
func (r *rendezvous) hello(i int, self elastic.Member) []peerMessage {
	g := r.peers[i]
	if len(g.ids) > 0 && !(g.answered && r.started) {
		return []peerMessage{{i, message{Abort: "a second hello from one process"}}}
	}
	self.Index, self.Launcher = i, r.order.Launcher
	g.ids, g.member, g.inView = append(g.ids, self.ID), self, false
	r.names[self.ID.Short()] = i
	switch {
	case r.broken != "":
		return r.answerAll(message{Abort: r.broken})
	case r.started && g.answered && r.signPass != nil: // a new ID
		return []peerMessage{{i, message{Pass: &pass{self.ID, r.signPass(self.ID)}}}}
	case r.started && g.answered:
		return nil
	case r.reforming:
		return nil // reform will answer
	case r.started:
		g.answered = true
		return r.answerJoin(i)
	}
	return r.tryStart()
}

// tryStart starts the group with the first view if all peers have said hello.
func (r *rendezvous) tryStart() []peerMessage {
	order := r.order
	order.Sole = true
	for _, i := range r.indices() {
		g := r.peers[i]
		if len(g.ids) == 0 {
			return nil
		}
		g.inView = true
		order.Peers = append(order.Peers, g.member)
	}
	r.started = true
	r.latest = known{Members: order.Peers}
	return r.answerAll(message{Start: &order})
}

// answerJoin tells peer i how to join the running group, and which members are certainly dead.
func (r *rendezvous) answerJoin(i int) []peerMessage {
	order := r.order
	order.Sole = len(r.order.Secret) > 0 && !r.hasForeignMembers()
	order.Contacts = r.contacts(i)
	order.Own = r.hasLocalMember()
	if r.signPass != nil {
		order.Pass = r.signPass(r.peers[i].member.ID)
	}
	// The deaths come after the start order, because a contact in the order may be dead.
	out := []peerMessage{{i, message{Start: &order}}}
	for _, id := range r.dead {
		out = append(out, peerMessage{i, message{Dead: id}})
	}
	return out
}

// contacts returns the members that are not known to be dead, and the local peers that may have
// become members since. It leaves out peer i.
func (r *rendezvous) contacts(i int) []elastic.Member {
	var out []elastic.Member
	there := map[elastic.ID]bool{r.peers[i].member.ID: true}
	add := func(p elastic.Member) {
		if !there[p.ID] && !slices.Contains(r.dead, p.ID) {
			there[p.ID] = true
			out = append(out, p)
		}
	}
	for _, p := range r.latest.Members {
		add(p)
	}
	for _, k := range r.indices() {
		if g := r.peers[k]; g.answered && !g.ended {
			add(g.member)
		}
	}
	return out
}

// learn records the state of the group that a peer has reported, unless a later state is recorded.
func (r *rendezvous) learn(k known) {
	// Reports of different peers may arrive out of order.
	k.Open = k.Open || r.latest.Open // an open job is never closed again
	if k.Epoch >= r.latest.Epoch {
		r.latest = k
	}
	r.latest.Open = k.Open
}

// recordExit records that peer i ended, and returns the messages to send now. how has the form
// "exited with status 3". certain is false if only the connection to the peer's host was lost.
func (r *rendezvous) recordExit(i int, how string, certain bool) []peerMessage {
	g := r.peers[i]
	g.ended = true
	switch {
	// Only the end of a process that this launcher or an agent has waited for is certain. If the
	// connection to a host was lost, the failure detector decides about the peers there.
	case r.started && certain:
		return r.announceDeath(g)
	case r.started:
		return nil
	}
	// All peers get the first end as the cause.
	if r.broken == "" {
		r.broken = fmt.Sprintf("peer %d %s before all had joined", i, how)
	}
	return r.answerAll(message{Abort: r.broken})
}

// announceDeath reports the deaths of all IDs of g to all other peers that have their answer, each ID
// once.
func (r *rendezvous) announceDeath(g *localPeer) []peerMessage {
	ids := g.ids[g.announced:]
	g.announced = len(g.ids)
	r.dead = append(r.dead, ids...)
	var out []peerMessage
	for _, i := range r.indices() {
		if other := r.peers[i]; other != g && other.answered && !other.ended {
			for _, id := range ids {
				out = append(out, peerMessage{i, message{Dead: id}})
			}
		}
	}
	return out
}

// answerAll addresses msg to all running peers that have said hello and have no answer yet.
func (r *rendezvous) answerAll(msg message) []peerMessage {
	var out []peerMessage
	for _, i := range r.indices() {
		if g := r.peers[i]; len(g.ids) > 0 && !g.ended && !g.answered {
			g.answered = true
			out = append(out, peerMessage{i, msg})
		}
	}
	return out
}

// indices returns the local indices in ascending order.
func (r *rendezvous) indices() []int { return slices.Sorted(maps.Keys(r.peers)) }

// joined reports whether peer i has said hello and the group has started.
func (r *rendezvous) joined(i int) bool { return r.started && len(r.peers[i].ids) > 0 }

// index returns the local index of the peer that has or had a short ID, or -1.
func (r *rendezvous) index(short string) int {
	if i, ok := r.names[short]; ok {
		return i
	}
	return -1
}

// host returns the host of the member with a short ID, or "" if unknown.
func (r *rendezvous) host(short string) string {
	for _, p := range r.latest.Members {
		if p.ID.Short() == short {
			return p.Host
		}
	}
	return ""
}

// shortID returns the short form of a peer's present ID, as in logs, "" before its hello.
func (r *rendezvous) shortID(i int) string {
	g := r.peers[i]
	if len(g.ids) == 0 {
		return ""
	}
	return g.ids[len(g.ids)-1].Short()
}

// shownPeers bounds the peers that a line names.
const shownPeers = 3

// describe describes members for people, given their short IDs in a list: peers of this launcher by
// their index, others by their host.
func (r *rendezvous) describe(ids string) string {
	parts, more := splitIDs(ids), ""
	if n := len(parts) - shownPeers; n > 1 {
		parts, more = parts[:shownPeers], fmt.Sprintf(" and %d more", n)
	}
	for i, id := range parts {
		if index := r.index(id); index >= 0 {
			parts[i] = fmt.Sprintf("peer %d (%s)", index, id)
		} else if host := r.host(id); host != "" {
			parts[i] = id + "@" + host
		}
	}
	return strings.Join(parts, ", ") + more
}

// isWaiting reports whether programs run that do not form a group yet.
func (r *rendezvous) isWaiting() bool {
	for _, p := range r.peers {
		if !p.ended {
			return !r.started
		}
	}
	return false
}

// leads reports whether a peer of this launcher has rank 0, as far as is known.
func (r *rendezvous) leads() bool {
	if len(r.latest.Members) == 0 {
		return len(r.order.Secret) > 0 // without the secret another launcher began the job
	}
	return r.latest.Members[0].Launcher == r.order.Launcher
}

// hasLocalMember reports whether a peer of this launcher is a member, as far as is known.
func (r *rendezvous) hasLocalMember() bool {
	return slices.ContainsFunc(r.latest.Members, func(p elastic.Member) bool { return p.Launcher == r.order.Launcher })
}

// hasForeignMembers reports whether the group has members that this launcher did not start.
func (r *rendezvous) hasForeignMembers() bool {
	return slices.ContainsFunc(r.latest.Members, func(p elastic.Member) bool { return p.Launcher != r.order.Launcher })
}
