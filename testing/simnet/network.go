package simnet

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/mem"
)

// Network joins members of elastic groups that live in one process. Its methods are
// safe for concurrent use.
type Network struct {
	config  Config
	clock   *clock
	working sync.WaitGroup // all goroutines but the clock's

	mu     sync.Mutex
	nodes  map[elastic.ID]*node
	links  map[[2]elastic.ID]*link
	order  []*link                // links in the order of their making
	absent map[elastic.ID][]frame // for members that are not there yet
	rules  []*rule                // later ones go first
	cuts   map[cut]bool           // by Cut
	groups map[elastic.ID]int     // by Partition; nil when there is none
	hook   func(Message) bool     // of KillWhen
	plans  []plan                 // of KillAt
	seen   map[string]*rankInView // by short ID, from the events
	closed bool
}

// New returns a network without members. In a synctest bubble it is made, used and closed
// within the bubble.
func New(c Config) *Network {
	n := &Network{
		config: c.withDefaults(), clock: newClock(),
		nodes: make(map[elastic.ID]*node), links: make(map[[2]elastic.ID]*link),
		absent: make(map[elastic.ID][]frame), cuts: make(map[cut]bool), seen: make(map[string]*rankInView),
	}
	n.rules = []*rule{{from: Any, to: Any, planes: all(nil), link: c.Link}}
	return n
}

// Endpoint returns all that member self needs of the network: always the same for an ID,
// which is on the network from the first call on. Others wait for one that they address
// before. Closing the endpoint takes the member off the network; an ID never comes back.
func (n *Network) Endpoint(self elastic.Member) elastic.Endpoint {
	m := n.node(self)
	over := m.network()
	return elastic.Endpoint{Self: m.self, Network: over, Keys: mem.Keyring("simnet").Keys(m.self.ID), Close: over.Close}
}

// node returns the node of that member, and makes it on first use.
func (n *Network) node(self elastic.Member) *node {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.nodes[self.ID]
	if m != nil {
		return m
	}
	m = newNode(n, self)
	n.nodes[self.ID] = m
	if n.closed {
		m.dead = errors.New("network closed")
		close(m.gone)
		return m
	}
	return m
}

// find returns the node of a member, nil if it is not there yet.
func (n *Network) find(id elastic.ID) *node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes[id]
}

// sortedLocked returns all nodes in the order of their IDs, so that what is done to each
// comes in one order.
func (n *Network) sortedLocked() []*node {
	var out []*node
	for _, m := range n.nodes {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b *node) int { return cmp.Compare(a.self.ID, b.self.ID) })
	return out
}

// Close takes all members off the network, which ends their sessions, and waits for all of
// the network's goroutines. Closing again does nothing.
func (n *Network) Close() error {
	n.mu.Lock()
	n.closed = true
	all := n.sortedLocked()
	n.mu.Unlock()
	for _, m := range all {
		m.quit(errors.New("network closed"))
	}
	n.clock.stop()
	n.working.Wait()
	return nil
}
