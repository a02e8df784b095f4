package simnet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
)

// errRefused: nobody listens there any more.
var errRefused = fmt.Errorf("connection refused: %w", elastic.ErrGone)

// errReset: the other end, or somebody between, has broken the connection.
var errReset = errors.New("connection reset")

// errClosed is why a member is off the network that has closed its endpoint.
var errClosed = errors.New("closed")

// parked is a frame whose sender was stopped before it could go.
type parked struct {
	pipe  *pipe
	frame frame
}

// item is an event that waits for the reader of Events; read is called when he has it.
type item struct {
	event elastic.PeerEvent
	read  func()
}

// node is one member on the network: a process and its host. It implements
// elastic.Network.
type node struct {
	net    *Network
	self   elastic.Member
	events chan elastic.PeerEvent
	gone   chan struct{} // closed when the member is off the network

	// Guarded by the network's mu.
	changed  *sync.Cond // inbox, stopped or dead have changed
	dead     error      // why it is off the network
	stopped  bool
	running  chan struct{} // closed while it is not stopped
	parked   []parked      // what it would have sent since it was stopped
	deferred []func()      // what it would have been told
	inbox    []item
	sent     [planes]int

	peers map[elastic.ID]*peer  // control connections
	lost  map[elastic.ID]error  // members of which this one knows that they are gone
	floor uint64                // epochs below it are over
	tries map[[32]byte]*attempt // Connects under way, by hash of the view
	early map[[32]byte][]*hello // from those that have entered a view first
	wires map[*end]bool         // of its sessions
	asked map[*stream]bool      // requests of its own
	owing map[*stream]bool      // requests that it answers
	reply replier
}

// newNode returns a node that runs; its pump is the caller's to start.
func newNode(n *Network, self elastic.Member) *node {
	m := &node{
		net: n, self: self,
		events: make(chan elastic.PeerEvent), gone: make(chan struct{}), running: make(chan struct{}),
		peers: make(map[elastic.ID]*peer), lost: make(map[elastic.ID]error),
		tries: make(map[[32]byte]*attempt), early: make(map[[32]byte][]*hello), wires: make(map[*end]bool),
		asked: make(map[*stream]bool), owing: make(map[*stream]bool),
	}
	m.changed = sync.NewCond(&n.mu)
	close(m.running)
	return m
}

// gate waits while the member is stopped: its process would not have come this far.
func (m *node) gate(ctx context.Context) error {
	for {
		running, err := m.state()
		if running == nil {
			return err
		}
		select {
		case <-running:
		case <-m.gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// state returns an error if the member is off the network, and a channel to wait for if
// it is stopped.
func (m *node) state() (running <-chan struct{}, err error) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	if m.dead != nil {
		return nil, m.deadLocked()
	}
	if m.stopped {
		return m.running, nil
	}
	return nil, nil
}

// deadLocked returns what the calls of a member that is off the network fail with.
func (m *node) deadLocked() error { return fmt.Errorf("%w: %w", transport.ErrClosed, m.dead) }

// resumeLocked lets the clock make up for what was deferred.
func (m *node) resumeLocked() {
	if len(m.deferred) > 0 {
		m.net.clock.at(time.Now(), m.makeUp)
	}
}

// makeUp calls what was deferred, in order, until the member is stopped again.
func (m *node) makeUp() {
	for {
		f := m.nextDeferred()
		if f == nil {
			return
		}
		f()
	}
}

// nextDeferred takes out the first of deferred; nil if there is nothing to do.
func (m *node) nextDeferred() func() {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	if m.stopped || m.dead != nil || len(m.deferred) == 0 {
		return nil
	}
	return shift(&m.deferred)
}

// pushLocked queues an event; read may be nil.
func (m *node) pushLocked(e elastic.PeerEvent, read func()) {
	m.inbox = append(m.inbox, item{e, read})
	m.changed.Signal()
}

// Events implements elastic.Network.
func (m *node) Events() <-chan elastic.PeerEvent { return m.events }

// Redial implements elastic.Network. A stream here flows again when its link does, so
// that there is nothing to give up.
func (m *node) Redial(elastic.ID) {}

// Introduce implements elastic.Network. In one process everybody is known.
func (m *node) Introduce([]elastic.Member) error { return nil }

// pump hands the inbox to the reader of Events until the member is off the network.
func (m *node) pump() {
	defer close(m.events)
	for {
		it, ok := m.takeItem()
		if !ok {
			return
		}
		select {
		case m.events <- it.event:
		case <-m.gone:
			return
		}
		if it.read != nil {
			it.read()
		}
	}
}

// takeItem waits for an event; ok is false once the member is off the network.
func (m *node) takeItem() (it item, ok bool) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	for m.dead == nil && (m.stopped || len(m.inbox) == 0) {
		m.changed.Wait()
	}
	if m.dead != nil {
		return item{}, false
	}
	return shift(&m.inbox), true
}

// Close takes the member off the network in good order. It is the Close of its endpoint.
func (m *node) Close() error {
	m.net.end(m, errClosed)
	return nil
}
