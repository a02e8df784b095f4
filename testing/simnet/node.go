package simnet

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/mesh"
)

// errClosed is why a member is off the network that has closed its endpoint.
var errClosed = errors.New("closed")

// parked is a frame whose sender was stopped before it could go.
type parked struct {
	pipe  *pipe
	frame frame
}

// node is one member on the network: a process and its host. It implements mesh.Carrier.
type node struct {
	net  *Network
	self elastic.Member
	gone chan struct{} // closed when the member is off the network

	once  sync.Once      // for mesh
	takes sync.WaitGroup // calls of take under way

	// Guarded by the network's mu.
	mesh      *mesh.Mesh                   // the session protocol above
	take      func(mesh.Kind, mesh.Stream) // nil while the member is not there yet
	cause     error                        // why it is being taken off the network
	dead      error                        // why it is
	stopped   bool
	stoppedAt time.Time
	running   chan struct{}    // closed while it is not stopped
	parked    []parked         // what it would have sent since it was stopped
	deferred  []frame          // what it would have been told
	streams   map[*stream]bool // that have not ended
	made      uint64           // streams
	sent      [planes]int
}

// newNode returns a node that runs.
func newNode(n *Network, self elastic.Member) *node {
	m := &node{net: n, self: self, gone: make(chan struct{}), running: make(chan struct{}), streams: make(map[*stream]bool)}
	close(m.running)
	return m
}

// ID implements mesh.Carrier.
func (m *node) ID() elastic.ID { return m.self.ID }

// Introduce implements mesh.Carrier. In one process everybody is known.
func (m *node) Introduce([]elastic.Member) error { return nil }

// Handle implements mesh.Carrier. From then on the member is there for others.
func (m *node) Handle(take func(mesh.Kind, mesh.Stream)) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	m.take = take
	m.deferred = m.net.absent[m.self.ID]
	delete(m.net.absent, m.self.ID)
	m.resumeLocked()
}

// Close implements mesh.Carrier: it takes the member off the network. Unless it is called
// for quit that is in good order.
func (m *node) Close() error {
	m.net.end(m)
	m.takes.Wait()
	return nil
}

// network returns the session protocol over the member, and begins it on first use.
func (m *node) network() *mesh.Mesh {
	m.once.Do(func() {
		over := mesh.New(m, mesh.Config{})
		m.net.mu.Lock()
		m.mesh = over
		late := m.dead != nil
		m.net.mu.Unlock()
		if late {
			_ = over.Close() // the carrier's, which is nil
		}
	})
	return m.mesh
}

// quit takes the member off the network because of why. Nothing that it sends from now on
// leaves it; its calls fail as those of a network that is closed.
func (m *node) quit(why error) {
	if m.beginQuit(why) {
		m.net.end(m)
	}
	<-m.gone
}

// beginQuit lets the session protocol close the member, or reports that there is none.
func (m *node) beginQuit(why error) (bare bool) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	if m.dead != nil || m.cause != nil {
		return false
	}
	m.cause = why
	if m.mesh != nil {
		m.net.working.Go(func() { _ = m.mesh.Close() }) // the carrier's, which is nil
	}
	return m.mesh == nil
}

// closedError returns what the calls of a member that is off the network fail with.
func (m *node) closedError() error {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	return m.deadLocked()
}

// deadLocked is closedError for callers with the lock.
func (m *node) deadLocked() error { return fmt.Errorf("%w: %w", transport.ErrClosed, m.dead) }

// wakeLocked lets all who read or write look again at what the member does.
func (m *node) wakeLocked() {
	for s := range m.streams {
		s.readable.Broadcast()
		s.writable.Broadcast()
		s.forgetLocked()
	}
}

// resumeLocked lets the clock make up for what was deferred.
func (m *node) resumeLocked() {
	if len(m.deferred) > 0 {
		m.net.clock.at(time.Now(), m.makeUp)
	}
}

// makeUp delivers what was deferred, in order, until the member is stopped again.
func (m *node) makeUp() {
	for {
		f, ok := m.nextDeferred()
		if !ok {
			return
		}
		f.deliver()
	}
}

// nextDeferred takes out the first of deferred; ok is false if there is nothing to do.
func (m *node) nextDeferred() (f frame, ok bool) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	if m.stopped || m.dead != nil || len(m.deferred) == 0 {
		return frame{}, false
	}
	return shift(&m.deferred), true
}
