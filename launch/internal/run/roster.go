package run

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/job"
	"github.com/elrun/elrun/launch/internal/say"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/transport/ticket"
)

// roster has the IDs of this launcher's peers, dead ones included, and the state of the group as
// members report it. It fills the messages that tell a peer how to become a member, as the job has
// decided. It does no I/O and is not safe for concurrent use.
//
// The job knows a peer by the short form of its ID, as event logs do.
type roster struct {
	order wire.StartOrder // the part of the answer to hello that is the same for all peers
	// peers has the processes of this launcher by local index, also those that have ended.
	peers  map[int]*localPeer
	latest wire.Known // the latest reported state of the group
	leads  []leader   // the launchers that have led the group, in the order of their epochs
	// program is the program of the command that the present group runs, from 1.
	program int

	dead     []elastic.ID                     // IDs of peers that are certainly dead
	signPass func(newcomer elastic.ID) []byte // makes passes; nil if another launcher began the job
	names    map[job.ID]named                 // ended processes included
}

// named is a peer that has, or had, an ID.
type named struct {
	index  int
	member elastic.Member
}

// leader is the launcher whose peer has rank 0 from an epoch on, "" in a group without members.
type leader struct {
	epoch    uint64
	launcher string
}

// localPeer is one local process.
type localPeer struct {
	// ids are the IDs with which the process has said hello. The last one is its present ID.
	ids     []elastic.ID
	member  elastic.Member
	program int  // which program of its command says hello, from 1; 0 before the first hello
	told    bool // the process was told how to become a member
	ended   bool
}

// newRoster returns a roster without peers.
func newRoster(order wire.StartOrder) *roster {
	r := &roster{order: order, peers: make(map[int]*localPeer), program: 1, names: make(map[job.ID]named)}
	r.enter(wire.Known{Members: order.Contacts})
	r.order.Contacts = nil
	// Only the launcher that began the job has the secret, and so can sign passes.
	if len(order.Secret) > 0 {
		signer := ticket.SignerOf(order.Secret)
		r.order.Root = signer.ID
		r.signPass = func(newcomer elastic.ID) []byte {
			c := signer.Claim(string(newcomer))
			return c.Signature[:]
		}
	}
	return r
}

// expect records that a process is started as peer i.
func (r *roster) expect(i int) { r.peers[i] = &localPeer{} }

// shorten returns the form in which the job knows an ID.
func shorten(id elastic.ID) job.ID { return job.ID(id.Short()) }

// hello records that peer i waits as self. A second hello with the same ID answers the message Again.
// One with another ID comes from a further program of the command, and the program before is dead.
func (r *roster) hello(i int, self elastic.Member) job.Hello {
	g := r.peers[i]
	if !slices.Contains(g.ids, self.ID) {
		r.dead = append(r.dead, g.ids...)
		*g = localPeer{program: g.program + 1}
		r.name(i, self)
	}
	return job.Hello{Seat: i, ID: shorten(self.ID), Program: g.program}
}

// renew records that peer i goes on under the ID of self.
func (r *roster) renew(i int, self elastic.Member) job.Renew {
	r.dead = append(r.dead, r.peers[i].ids...)
	r.name(i, self)
	return job.Renew{Seat: i, ID: shorten(self.ID)}
}

// name records another ID of peer i.
func (r *roster) name(i int, self elastic.Member) {
	self.Index, self.Launcher = i, r.order.Launcher
	g := r.peers[i]
	g.ids, g.member = append(g.ids, self.ID), self
	r.names[shorten(self.ID)] = named{i, self}
}

// end records that the process of peer i has ended. certain is false if only the connection to its
// host was lost.
func (r *roster) end(i int, certain bool) {
	g := r.peers[i]
	if g.ended = true; certain {
		r.dead = append(r.dead, g.ids...)
	}
}

// first returns the order that names the members of a first view.
func (r *roster) first(members []job.ID) wire.Message {
	order := r.order
	order.Sole = true
	for _, id := range members {
		order.Peers = append(order.Peers, r.names[id].member)
	}
	return wire.Message{Start: &order}
}

// begin records that these peers form the first view of a group that runs a program of the command. To
// the programs, a further program is another job: its state has nothing to do with the state of the
// program before.
func (r *roster) begin(members []job.ID, program int) {
	for ; r.program < program; r.program++ {
		r.order.Job += "+"
	}
	r.leads = nil // the epochs of the new group begin again
	r.enter(wire.Known{Members: r.first(members).Start.Peers})
	for _, id := range members {
		r.peers[r.names[id].index].told = true
	}
}

// join returns the order that tells peer i how to join the running group.
func (r *roster) join(i int) wire.Message {
	order := r.order
	order.Sole = len(r.order.Secret) > 0 && !r.hasForeignMembers()
	order.Contacts = r.contacts(i)
	order.Own = r.hasLocalMember()
	if r.signPass != nil {
		order.Pass = r.signPass(r.peers[i].member.ID)
	}
	r.peers[i].told = true
	return wire.Message{Start: &order}
}

// pass returns the message that lets a peer of this launcher join under a new ID, and false if another
// launcher began the job.
func (r *roster) pass(id job.ID) (wire.Message, bool) {
	if r.signPass == nil {
		return wire.Message{}, false
	}
	full := r.full(id)
	return wire.Message{Pass: &wire.Pass{ID: full, Signature: r.signPass(full)}}, true
}

// full returns the ID of a peer of this launcher.
func (r *roster) full(id job.ID) elastic.ID { return r.names[id].member.ID }

// contacts returns the members that are not known to be dead, and the local peers that may have
// become members since. It leaves out peer i.
func (r *roster) contacts(i int) []elastic.Member {
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
	for _, k := range slices.Sorted(maps.Keys(r.peers)) {
		if g := r.peers[k]; g.told && !g.ended {
			add(g.member)
		}
	}
	return out
}

// learn records the state of the group that a peer has reported, unless a later state is recorded.
func (r *roster) learn(k wire.Known) {
	// Reports of different peers may arrive out of order.
	k.Open = k.Open || r.latest.Open // an open job is never closed again
	if k.Epoch >= r.latest.Epoch {
		r.enter(k)
	}
	r.latest.Open = k.Open
}

// enter records a state of the group as the latest one, and who leads from there on.
func (r *roster) enter(k wire.Known) {
	r.latest = k
	l := leader{epoch: k.Epoch}
	if len(k.Members) > 0 {
		l.launcher = k.Members[0].Launcher
	}
	if n := len(r.leads); n == 0 || r.leads[n-1].launcher != l.launcher {
		r.leads = append(r.leads, l)
	}
}

// index returns the local index of the peer that has or had a short ID, or -1.
func (r *roster) index(short string) int {
	if p, ok := r.names[job.ID(short)]; ok {
		return p.index
	}
	return -1
}

// host returns the host of the member with a short ID, or "" if unknown.
func (r *roster) host(short string) string {
	for _, p := range r.latest.Members {
		if p.ID.Short() == short {
			return p.Host
		}
	}
	return ""
}

// shortID returns the short form of a peer's present ID, as in logs, "" before its hello.
func (r *roster) shortID(i int) string {
	g := r.peers[i]
	if g == nil || len(g.ids) == 0 {
		return ""
	}
	return g.ids[len(g.ids)-1].Short()
}

// describe describes members for people, given their short IDs in a list: peers of this launcher by
// their index, others by their host.
func (r *roster) describe(ids string) string {
	parts, more := wire.SplitIDs(ids), ""
	if n := len(parts) - say.ShownPeers; n > 1 {
		parts, more = parts[:say.ShownPeers], fmt.Sprintf(" and %d more", n)
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

// isLeading reports whether a peer of this launcher has rank 0, as far as is known.
func (r *roster) isLeading() bool { return r.led(math.MaxUint64) }

// led reports whether a peer of this launcher had rank 0 in an epoch, as far as is known.
func (r *roster) led(epoch uint64) bool {
	l := r.leads[0].launcher
	for _, next := range r.leads {
		if next.epoch <= epoch {
			l = next.launcher
		}
	}
	if l == "" {
		return len(r.order.Secret) > 0 // without the secret another launcher began the job
	}
	return l == r.order.Launcher
}

// hasLocalMember reports whether a peer of this launcher is a member, as far as is known.
func (r *roster) hasLocalMember() bool {
	return slices.ContainsFunc(r.latest.Members, func(p elastic.Member) bool { return p.Launcher == r.order.Launcher })
}

// others returns the members that this launcher did not start, as far as is known.
func (r *roster) others() []elastic.Member {
	return slices.DeleteFunc(slices.Clone(r.latest.Members), func(p elastic.Member) bool { return p.Launcher == r.order.Launcher })
}

// members returns the indices of the peers of this launcher that are members, as far as is known.
func (r *roster) members() (seats []int) {
	for _, m := range r.latest.Members {
		if i := r.index(m.ID.Short()); i >= 0 && m.Launcher == r.order.Launcher && r.peers[i] != nil && !r.peers[i].ended {
			seats = append(seats, i)
		}
	}
	return seats
}

// hasForeignMembers reports whether the group has members that this launcher did not start.
func (r *roster) hasForeignMembers() bool {
	return slices.ContainsFunc(r.latest.Members, func(p elastic.Member) bool { return p.Launcher != r.order.Launcher })
}

// dying records that the program of peer i that said hello by an ID has ended, though its process may
// not have. It reports false for an earlier program, whose end is known.
func (r *roster) dying(i int, id elastic.ID) bool {
	g := r.peers[i]
	if g == nil || g.ended || !slices.Contains(g.ids, id) {
		return false
	}
	r.dead = append(r.dead, g.ids...)
	return true
}
