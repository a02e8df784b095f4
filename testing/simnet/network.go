package simnet

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/mem"
)

// Network connects members of elastic groups that run in one process. Its methods are safe for concurrent use.
type Network struct {
	config  Config
	clock   *clock
	working sync.WaitGroup // all goroutines except the clock's

	mu     sync.Mutex
	nodes  map[elastic.ID]*node
	links  map[[2]elastic.ID]*link
	order  []*link                // all links, in the order of creation
	absent map[elastic.ID][]frame // frames for members that do not exist yet
	rules  []*rule                // a later rule overrides earlier ones
	cuts   map[cut]bool           // made by Cut
	groups map[elastic.ID]int     // made by Partition; nil without a partition
	hook   func(Message) bool     // set by KillWhen
	plans  []plan                 // made by KillAt
	seen   map[string]*rankInView // ranks by short ID, according to the events
	closed bool
}

// New returns a network without members. A network for a synctest bubble must be created, used and closed within the bubble.
func New(c Config) *Network {
	n := &Network{
		config: c.withDefaults(), clock: newClock(),
		nodes: make(map[elastic.ID]*node), links: make(map[[2]elastic.ID]*link),
		absent: make(map[elastic.ID][]frame), cuts: make(map[cut]bool), seen: make(map[string]*rankInView),
	}
	n.rules = []*rule{{from: Any, to: Any, planes: all(nil), link: c.Link}}
	return n
}

// Endpoint returns the endpoint of the member self, which is always the same for an ID. From the
// first call on the member is on the network. Messages and streams to a member that does not exist
// yet wait for it. Closing the endpoint takes the member off the network, and its ID cannot be used
// again.
func (n *Network) Endpoint(self elastic.Member) elastic.Endpoint {
	m := n.node(self)
	over := m.network()
	return elastic.Endpoint{Self: m.self, Network: over, Keys: mem.Keyring("simnet").Keys(m.self.ID), Close: over.Close}
}

// node returns the node of a member, and creates it on first use.
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

// find returns the node of a member, or nil if the member does not exist yet.
func (n *Network) find(id elastic.ID) *node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes[id]
}

// sortedLocked returns all nodes sorted by ID, so that actions on all nodes always have the same order.
func (n *Network) sortedLocked() []*node {
	var out []*node
	for _, m := range n.nodes {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b *node) int { return cmp.Compare(a.self.ID, b.self.ID) })
	return out
}

// Close takes all members off the network, which ends their sessions, and waits for all goroutines
// of the network. A second call does nothing.
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
