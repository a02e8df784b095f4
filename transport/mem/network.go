package mem

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/mesh"
)

// Network connects members of elastic groups in one process. A member is connected from the first
// call of Member or Endpoint with its ID; until then calls of other members to it fail and are
// retried. The ID of a member that has left stays in members: the ID cannot be used again.
type Network struct {
	ring    Keyring
	plan    mesh.Plan
	killing sync.WaitGroup // calls of Kill whose members are still being closed

	// mu guards the fields below.
	mu      sync.Mutex
	members map[elastic.ID]*Member
}

// NewNetwork returns a network without members.
func NewNetwork() *Network {
	return &Network{ring: Keyring(rand.Text()), members: make(map[elastic.ID]*Member)}
}

// Member returns the member with that ID, the same one on each call. Closing it disconnects it.
// After that Member still returns the closed member, because IDs are not used again.
func (n *Network) Member(id elastic.ID) *Member {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.members[id]
	if m == nil {
		// mesh.New calls Handle at once, so take is set before another member can open a stream.
		c := &carrier{network: n, id: id, open: make(map[*stream]bool), gone: make(chan struct{})}
		m = &Member{Mesh: mesh.New(c, mesh.Config{Plan: n.plan}), carrier: c}
		n.members[id] = m
	}
	return m
}

// Endpoint returns the elastic.Endpoint of member self. Closing it closes the member.
func (n *Network) Endpoint(self elastic.Member) elastic.Endpoint {
	m := n.Member(self.ID)
	return elastic.Endpoint{Self: self, Network: m, Keys: n.ring.Keys(self.ID), Close: m.Close}
}

// Kill ends member id as a crash would: its calls fail with ErrClosed, its peers see a PeerDown,
// and every transport with the member is revoked with a *transport.PeerError that names the member.
// The ID cannot be used again.
func (n *Network) Kill(id elastic.ID) {
	m := n.Member(id)
	n.killing.Go(func() { _ = m.Close() }) // Close waits for goroutines, one of which may be the caller's
	<-m.carrier.gone
}

// Close closes all members, and waits for the network's goroutines.
func (n *Network) Close() error {
	n.mu.Lock()
	var all []*Member
	for _, m := range n.members {
		all = append(all, m)
	}
	n.mu.Unlock()
	var errs []error
	for _, m := range all {
		errs = append(errs, m.Close())
	}
	n.killing.Wait()
	return errors.Join(errs...)
}

// Member is one ID on a Network. It implements elastic.Network.
type Member struct {
	*mesh.Mesh
	carrier *carrier
}

// Close ends the member's calls and streams, and waits for its goroutines.
func (m *Member) Close() error {
	m.carrier.leave()
	return m.Mesh.Close()
}

// carrier carries the streams of one member. It implements mesh.Carrier.
type carrier struct {
	network *Network
	id      elastic.ID
	take    func(mesh.Kind, mesh.Stream) // the mesh's handler for streams that others open
	taking  sync.WaitGroup               // calls of take in progress
	gone    chan struct{}                // closed when the member has left

	// Guarded by the network's mu.
	left bool
	open map[*stream]bool
}

// wire is the state that the two ends of a stream share.
type wire struct {
	// ends are the two members that the stream connects. The member that has opened it is the
	// first.
	ends [2]*carrier
	kind mesh.Kind
}

// ID implements mesh.Carrier.
func (c *carrier) ID() elastic.ID { return c.id }

// Introduce implements mesh.Carrier. In one process all members know each other.
func (c *carrier) Introduce([]elastic.Member) error { return nil }

// Handle implements mesh.Carrier.
func (c *carrier) Handle(take func(k mesh.Kind, s mesh.Stream)) { c.take = take }

// HangUp implements mesh.Carrier. It does nothing, as no stream gets stuck within a process.
func (c *carrier) HangUp(elastic.ID) {}

// Open implements mesh.Carrier. Open does not wait: the other member handles its end of the stream
// in a new goroutine. If the other member has left, the error wraps elastic.ErrGone. If the other
// member has not been created yet, the error does not wrap ErrGone, so that the caller tries again.
func (c *carrier) Open(ctx context.Context, to elastic.ID, k mesh.Kind) (mesh.Stream, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	w := c.network
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.members[to]
	switch {
	case c.left:
		return nil, fmt.Errorf("%w: the member has left", transport.ErrClosed)
	case m == nil:
		return nil, errors.New("the member has not joined yet")
	}
	other := m.carrier
	if other.left {
		return nil, fmt.Errorf("%w: the member has left", elastic.ErrGone)
	}
	there, back := newPipe(), newPipe()
	between := &wire{[2]*carrier{c, other}, k}
	near := &stream{in: back, out: there, wire: between, self: 0}
	far := &stream{in: there, out: back, wire: between, self: 1}
	c.open[near], other.open[far] = true, true
	other.taking.Go(func() { other.take(k, far) }) // other has not left, so its Close does not wait yet
	return near, nil
}

// leave disconnects the member: no new streams are opened from or to it.
func (c *carrier) leave() {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	c.left = true
}

// streams returns a copy of the set of open streams.
func (c *carrier) streams() map[*stream]bool {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	return maps.Clone(c.open)
}

// Close implements mesh.Carrier.
func (c *carrier) Close() error {
	c.leave()
	// Reset takes the lock itself, so the loop runs over a copy.
	for s := range c.streams() {
		_ = s.Reset()
	}
	close(c.gone)
	c.taking.Wait()
	return nil
}

// Peer implements mesh.Stream.
func (s *stream) Peer() elastic.ID { return s.ends[1-s.self].id }

// Path implements mesh.Stream.
func (s *stream) Path() event.Path { return event.Path{Kind: "mem"} }

// forget removes a stream that has ended from its member, and reports whether the member has left.
func (s *stream) forget() (left bool) {
	c := s.ends[s.self]
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	delete(c.open, s)
	return c.left
}
