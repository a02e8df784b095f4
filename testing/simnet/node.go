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

// errClosed is the cause of a member that has closed its endpoint.
var errClosed = errors.New("closed")

// parked is a frame whose sender was stopped before the frame could leave.
type parked struct {
	pipe  *pipe
	frame frame
}

// node is a member on the network: a process and its host. It implements mesh.Carrier.
type node struct {
	net  *Network
	self elastic.Member
	gone chan struct{} // closed when the member is off the network

	once  sync.Once      // creates mesh
	takes sync.WaitGroup // running calls of take

	// Guarded by the network's mu.
	mesh      *mesh.Mesh                   // the session protocol on top
	take      func(mesh.Kind, mesh.Stream) // nil before Handle
	cause     error                        // why the session protocol takes the member off the network
	dead      error                        // why the member is off the network
	stopped   bool
	stoppedAt time.Time
	running   chan struct{}    // closed while the member is not stopped
	parked    []parked         // frames of the member since it was stopped
	deferred  []frame          // frames for the member since it was stopped
	streams   map[*stream]bool // streams that have not ended
	made      uint64           // number of streams so far
	sent      [planes]int
}

// newNode returns a node that is running.
func newNode(n *Network, self elastic.Member) *node {
	m := &node{net: n, self: self, gone: make(chan struct{}), running: make(chan struct{}), streams: make(map[*stream]bool)}
	close(m.running)
	return m
}

// ID implements mesh.Carrier.
func (m *node) ID() elastic.ID { return m.self.ID }

// Introduce implements mesh.Carrier. It does nothing, because every member can open streams to
// every other member.
func (m *node) Introduce([]elastic.Member) error { return nil }

// Handle implements mesh.Carrier. From now on other members can open streams to this member.
func (m *node) Handle(take func(mesh.Kind, mesh.Stream)) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	m.take = take
	m.deferred = m.net.absent[m.self.ID]
	delete(m.net.absent, m.self.ID)
	m.resumeLocked()
}

// Close implements mesh.Carrier. It takes the member off the network. The streams of other members
// end with io.EOF, unless quit has set another cause.
func (m *node) Close() error {
	m.net.end(m)
	m.takes.Wait()
	return nil
}

// network returns the session protocol of the member, and creates it on first use.
func (m *node) network() *mesh.Mesh {
	m.once.Do(func() {
		over := mesh.New(m, mesh.Config{Plan: m.net.config.Plan})
		m.net.mu.Lock()
		m.mesh = over
		late := m.dead != nil
		m.net.mu.Unlock()
		if late {
			_ = over.Close() // Close returns the error of the carrier, which is nil
		}
	})
	return m.mesh
}

// quit takes the member off the network with the given cause. The member sends nothing more, and its calls fail as on a closed
// network.
func (m *node) quit(why error) {
	if m.beginQuit(why) {
		m.net.end(m)
	}
	<-m.gone
}

// beginQuit closes the session protocol, which then closes the member. It returns true if there is no session protocol.
func (m *node) beginQuit(why error) (bare bool) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	if m.dead != nil || m.cause != nil {
		return false
	}
	m.cause = why
	if m.mesh != nil {
		m.net.working.Go(func() { _ = m.mesh.Close() }) // Close returns the error of the carrier, which is nil
	}
	return m.mesh == nil
}

// closedError returns the error for calls of a member that is off the network.
func (m *node) closedError() error {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	return m.deadLocked()
}

// deadLocked is closedError for callers with the lock.
func (m *node) deadLocked() error { return fmt.Errorf("%w: %w", transport.ErrClosed, m.dead) }

// wakeLocked wakes all goroutines that read or write streams of the member, because its state has changed.
func (m *node) wakeLocked() {
	for s := range m.streams {
		s.readable.Broadcast()
		s.writable.Broadcast()
		s.forgetLocked()
	}
}

// resumeLocked schedules the delivery of the deferred frames.
func (m *node) resumeLocked() {
	if len(m.deferred) > 0 {
		m.net.clock.at(time.Now(), m.makeUp)
	}
}

// makeUp delivers the deferred frames in order, unless the member is stopped again.
func (m *node) makeUp() {
	for {
		f, ok := m.nextDeferred()
		if !ok {
			return
		}
		f.deliver()
	}
}

// nextDeferred removes and returns the first deferred frame. ok is false if nothing is to be delivered.
func (m *node) nextDeferred() (f frame, ok bool) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	if m.stopped || m.dead != nil || len(m.deferred) == 0 {
		return frame{}, false
	}
	return shift(&m.deferred), true
}
