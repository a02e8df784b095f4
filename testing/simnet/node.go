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
func (n *node) ID() elastic.ID { return n.self.ID }

// Introduce implements mesh.Carrier. It does nothing, because every member can open streams to
// every other member.
func (n *node) Introduce([]elastic.Member) error { return nil }

// Handle implements mesh.Carrier. From now on other members can open streams to this member.
func (n *node) Handle(take func(mesh.Kind, mesh.Stream)) {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	n.take = take
	n.deferred = n.net.absent[n.self.ID]
	delete(n.net.absent, n.self.ID)
	n.resumeLocked()
}

// Close implements mesh.Carrier. It takes the member off the network. The streams of other members
// end with io.EOF, unless quit has set another cause.
func (n *node) Close() error {
	n.net.end(n)
	n.takes.Wait()
	return nil
}

// network returns the session protocol of the member, and creates it on first use.
func (n *node) network() *mesh.Mesh {
	n.once.Do(func() {
		over := mesh.New(n, mesh.Config{Plan: n.net.config.Plan})
		n.net.mu.Lock()
		n.mesh = over
		late := n.dead != nil
		n.net.mu.Unlock()
		if late {
			_ = over.Close() // Close returns the error of the carrier, which is nil
		}
	})
	return n.mesh
}

// quit takes the member off the network with the given cause. The member sends nothing more, and its calls fail as on a closed
// network.
func (n *node) quit(why error) {
	if n.beginQuit(why) {
		n.net.end(n)
	}
	<-n.gone
}

// beginQuit closes the session protocol, which then closes the member. It returns true if there is no session protocol.
func (n *node) beginQuit(why error) (bare bool) {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	if n.dead != nil || n.cause != nil {
		return false
	}
	n.cause = why
	if n.mesh != nil {
		n.net.working.Go(func() { _ = n.mesh.Close() }) // Close returns the error of the carrier, which is nil
	}
	return n.mesh == nil
}

// closedError returns the error for calls of a member that is off the network.
func (n *node) closedError() error {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	return n.deadLocked()
}

// deadLocked is closedError for callers with the lock.
func (n *node) deadLocked() error { return fmt.Errorf("%w: %w", transport.ErrClosed, n.dead) }

// wakeLocked wakes all goroutines that read or write streams of the member, because its state has changed.
func (n *node) wakeLocked() {
	for s := range n.streams {
		s.readable.Broadcast()
		s.writable.Broadcast()
		s.forgetLocked()
	}
}

// resumeLocked schedules the delivery of the deferred frames.
func (n *node) resumeLocked() {
	if len(n.deferred) > 0 {
		n.net.clock.at(time.Now(), n.makeUp)
	}
}

// makeUp delivers the deferred frames in order, unless the member is stopped again.
func (n *node) makeUp() {
	for {
		f, ok := n.nextDeferred()
		if !ok {
			return
		}
		f.deliver()
	}
}

// nextDeferred removes and returns the first deferred frame. ok is false if nothing is to be delivered.
func (n *node) nextDeferred() (f frame, ok bool) {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	if n.stopped || n.dead != nil || len(n.deferred) == 0 {
		return frame{}, false
	}
	return shift(&n.deferred), true
}
