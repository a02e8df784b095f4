package launch

import (
	"fmt"
	"maps"
	"slices"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/ticket"
)

// meeting collects the hellos of the peers and decides the answers (rendezvous). It does no I/O
// and is not safe for concurrent use.
//
//	waiting --all said hello--> started: all get the first view
//	   |                           late peers, and all peers of a launcher that joins a
//	   |                           running job, get contacts; every death is reported to all
//	   |                           no member lives (anew.go): waiting peers begin anew
//	   +--one ended--> broken: all that have said hello, or say it later, have to give up
//
// A program that never says hello is not a peer and needs no answer. If no program says hello, the
// meeting stays in waiting, and the programs run to their ends.
type meeting struct {
	order   startOrder // the part of the answer that is the same for all
	guests  map[int]*guest
	started bool
	broken  string // why the group cannot be formed
	latest  known  // the latest reported state of the group

	// Fields for anew.go.
	foreign  bool // a peer of another launcher has been a member
	finished bool // a member has ended with status 0
	gather   bool // no member lives, and some running peers have not said hello

	dead  []elastic.ID                     // IDs of guests that ended after the start
	signs func(newcomer elastic.ID) []byte // makes passes; nil if another launcher began the job
	names map[string]int                   // local index by short ID, ended processes included
}

// guest is one local process.
type guest struct {
	ids   []elastic.ID // IDs of its hellos; the last one is the present ID
	self  elastic.Member
	told  bool // it has got its answer
	ended bool

	member   bool // it was in a view under its present ID
	further  bool // its program is not the first in its process
	released bool // it was told that the job is finished
}

// letter is a message to one peer.
type letter struct {
	to  int
	msg message
}

// newMeeting returns a meeting of n peers. With late, for a launcher that joins a running job, the
// peers do not wait for each other.
func newMeeting(n int, order startOrder, late bool) *meeting {
	m := &meeting{order: order, guests: make(map[int]*guest), started: late, names: make(map[string]int)}
	m.latest.Members, m.order.Contacts = order.Contacts, nil
	if len(order.Secret) > 0 {
		signer := ticket.SignerOf(order.Secret)
		m.order.Root = signer.ID
		m.signs = func(newcomer elastic.ID) []byte {
			c := signer.Claim(string(newcomer))
			return c.Signature[:]
		}
	}
	for i := range n {
		m.guests[i] = &guest{}
	}
	return m
}

// expect records that a process is started as peer i, also for a restart.
func (m *meeting) expect(i int) { m.guests[i] = &guest{} }

// hello records that peer i wants to join as self, or has the new identity self. It returns the
// messages to send now.
func (m *meeting) hello(i int, self elastic.Member) []letter {
	g := m.guests[i]
	if len(g.ids) > 0 && !(g.told && m.started) {
		return []letter{{i, message{Abort: "a second hello from one process"}}}
	}
	self.Index, self.Launcher = i, m.order.Launcher
	g.ids, g.self, g.member = append(g.ids, self.ID), self, false
	m.names[self.ID.Short()] = i
	switch {
	case m.broken != "":
		return m.tell(message{Abort: m.broken})
	case m.started && g.told && m.signs != nil: // a new ID
		return []letter{{i, message{Pass: &pass{self.ID, m.signs(self.ID)}}}}
	case m.started && g.told:
		return nil
	case m.gather:
		return nil // anew will answer
	case m.started:
		g.told = true
		return m.late(i)
	}
	return m.tryStart()
}

// tryStart starts the group with the first view if all peers have said hello.
func (m *meeting) tryStart() []letter {
	order := m.order
	order.Sole = true
	for _, i := range m.indices() {
		g := m.guests[i]
		if len(g.ids) == 0 {
			return nil
		}
		g.member = true
		order.Peers = append(order.Peers, g.self)
	}
	m.started = true
	m.latest = known{Members: order.Peers}
	return m.tell(message{Start: &order})
}

// late answers peer i with the way into the running group and the certain deaths.
func (m *meeting) late(i int) []letter {
	order := m.order
	order.Sole = len(m.order.Secret) > 0 && !m.strangers()
	order.Contacts = m.contacts(i)
	order.Own = m.own()
	if m.signs != nil {
		order.Pass = m.signs(m.guests[i].self.ID)
	}
	out := []letter{{i, message{Start: &order}}}
	for _, id := range m.dead {
		out = append(out, letter{i, message{Dead: id}})
	}
	return out
}

// contacts returns the members that are not known to be dead, and the local peers that may have
// become members since, except for peer i.
func (m *meeting) contacts(i int) []elastic.Member {
	var out []elastic.Member
	there := map[elastic.ID]bool{m.guests[i].self.ID: true}
	add := func(p elastic.Member) {
		if !there[p.ID] && !slices.Contains(m.dead, p.ID) {
			there[p.ID] = true
			out = append(out, p)
		}
	}
	for _, p := range m.latest.Members {
		add(p)
	}
	for _, k := range m.indices() {
		if g := m.guests[k]; g.told && !g.ended {
			add(g.self)
		}
	}
	return out
}

// learn records the state of the group that a peer has reported, unless it is older.
func (m *meeting) learn(k known) {
	k.Open = k.Open || m.latest.Open // an open job is never closed again
	if k.Epoch >= m.latest.Epoch {
		m.latest = k
	}
	m.latest.Open = k.Open
}

// exit records that peer i ended, with how in the form "exited with status 3", and returns the
// messages to send now. certain is false if only the connection to its host was lost.
func (m *meeting) exit(i int, how string, certain bool) []letter {
	g := m.guests[i]
	g.ended = true
	switch {
	case m.started && certain:
		return m.tellDead(g)
	case m.started:
		return nil
	}
	if m.broken == "" {
		m.broken = fmt.Sprintf("peer %d %s before all had joined", i, how)
	}
	return m.tell(message{Abort: m.broken})
}

// tellDead reports the deaths of all IDs of g to all peers that have their answer.
func (m *meeting) tellDead(g *guest) []letter {
	m.dead = append(m.dead, g.ids...)
	var out []letter
	for _, i := range m.indices() {
		if other := m.guests[i]; other.told && !other.ended {
			for _, id := range g.ids {
				out = append(out, letter{i, message{Dead: id}})
			}
		}
	}
	return out
}

// tell addresses msg to all running peers that have said hello and have no answer yet.
func (m *meeting) tell(msg message) []letter {
	var out []letter
	for _, i := range m.indices() {
		if g := m.guests[i]; len(g.ids) > 0 && !g.ended && !g.told {
			g.told = true
			out = append(out, letter{i, msg})
		}
	}
	return out
}

// indices returns the local indices in ascending order.
func (m *meeting) indices() []int { return slices.Sorted(maps.Keys(m.guests)) }

// joined reports whether peer i has said hello and the group has started.
func (m *meeting) joined(i int) bool { return m.started && len(m.guests[i].ids) > 0 }

// index returns the local index of the peer that has or had a short ID, or -1.
func (m *meeting) index(short string) int {
	if i, ok := m.names[short]; ok {
		return i
	}
	return -1
}

// host returns the host of a member by its short ID, "" if unknown.
func (m *meeting) host(short string) string {
	for _, p := range m.latest.Members {
		if p.ID.Short() == short {
			return p.Host
		}
	}
	return ""
}

// leads reports whether a peer of this launcher has rank 0, as far as is known.
func (m *meeting) leads() bool {
	if len(m.latest.Members) == 0 {
		return len(m.order.Secret) > 0 // otherwise others have formed the group
	}
	return m.latest.Members[0].Launcher == m.order.Launcher
}

// own reports whether a peer of this launcher is a member, as far as is known.
func (m *meeting) own() bool {
	return slices.ContainsFunc(m.latest.Members, func(p elastic.Member) bool { return p.Launcher == m.order.Launcher })
}

// strangers reports whether the group has members that this launcher did not start.
func (m *meeting) strangers() bool {
	return slices.ContainsFunc(m.latest.Members, func(p elastic.Member) bool { return p.Launcher != m.order.Launcher })
}
