package mem

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
)

// Network joins members of elastic groups that live in one process. A member is on
// it from the first use of its ID.
type Network struct {
	pumps sync.WaitGroup // one goroutine per member, and one per answer of Bulk

	ring Keyring

	mu       sync.Mutex
	members  map[elastic.ID]*Member
	meetings map[[32]byte]*meeting // by hash of the view
}

// NewNetwork returns a network without members.
func NewNetwork() *Network {
	return &Network{ring: Keyring(rand.Text()), members: make(map[elastic.ID]*Member), meetings: make(map[[32]byte]*meeting)}
}

// Member returns the member of that ID, always the same one for an ID. Closing it takes
// it off the network in good order.
func (w *Network) Member(id elastic.ID) *Member {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.memberLocked(id)
}

// memberLocked returns the member of that ID, and makes it on first use.
func (w *Network) memberLocked(id elastic.ID) *Member {
	m := w.members[id]
	if m == nil {
		m = &Member{network: w, id: id, up: make(map[*Member]bool), streams: make(map[*stream]bool),
			events: make(chan elastic.PeerEvent), gone: make(chan struct{})}
		m.queued = sync.NewCond(&w.mu)
		w.members[id] = m
		w.pumps.Go(m.pump)
	}
	return m
}

// Kill ends member id as a crash does: its calls fail with ErrClosed, its peers see
// a PeerDown, and every transport of which it is a member is revoked with a
// *transport.PeerError that names it. The ID cannot come back.
func (w *Network) Kill(id elastic.ID) {
	m := w.Member(id)
	for _, t := range m.leave(errors.New("killed")) {
		t.Kill()
	}
}

// Close closes every member's Events and waits for the network's goroutines.
func (w *Network) Close() error {
	w.mu.Lock()
	var all []*Member
	for _, m := range w.members {
		all = append(all, m)
	}
	w.mu.Unlock()
	for _, m := range all {
		m.leave(errors.New("network closed"))
	}
	w.pumps.Wait()
	return nil
}

// Member is one ID on a Network. It implements elastic.Network.
type Member struct {
	network *Network
	id      elastic.ID
	events  chan elastic.PeerEvent
	gone    chan struct{} // closed when the member has left

	// Guarded by the network's mu.
	queued *sync.Cond // queue has grown, or left is set
	queue  []elastic.PeerEvent
	up     map[*Member]bool // connected with
	ends   []*Transport     // of all views it entered
	left   error            // why it is off the network

	answer  answerer
	streams map[*stream]bool // answers under way, from it and to it
}

// Send implements elastic.Network. It never blocks, as the queue of a member has no
// bound; one that is not there yet finds its messages when it comes.
func (m *Member) Send(ctx context.Context, to elastic.ID, msg []byte) error {
	err := m.send(ctx, to, msg)
	if err != nil {
		return fmt.Errorf("mem: send to %s: %w", to.Short(), err)
	}
	return nil
}

// send queues the message and, if this is the first of the pair, the connection before
// it; under one lock, so that all members see one order.
func (m *Member) send(ctx context.Context, to elastic.ID, msg []byte) error {
	if len(msg) > elastic.MaxControl {
		return fmt.Errorf("message of %d bytes, at most %d", len(msg), elastic.MaxControl)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	m.network.mu.Lock()
	defer m.network.mu.Unlock()
	other := m.network.memberLocked(to)
	switch {
	case m.left != nil:
		return fmt.Errorf("%w: %w", transport.ErrClosed, m.left)
	case other == m:
		return errors.New("a member cannot connect to itself")
	case other.left != nil:
		return fmt.Errorf("%w: %w", elastic.ErrGone, other.left)
	}
	if !m.up[other] {
		m.up[other], other.up[m] = true, true
		m.pushLocked(elastic.PeerEvent{Peer: to, Kind: elastic.PeerUp})
		other.pushLocked(elastic.PeerEvent{Peer: m.id, Kind: elastic.PeerUp})
	}
	data := append([]byte(nil), msg...)
	other.pushLocked(elastic.PeerEvent{Peer: m.id, Kind: elastic.PeerMessage, Data: data})
	return nil
}

// pushLocked queues an event for the pump.
func (m *Member) pushLocked(e elastic.PeerEvent) {
	m.queue = append(m.queue, e)
	m.queued.Signal()
}

// Introduce implements elastic.Network. In one process everybody is known.
func (m *Member) Introduce([]elastic.Member) error { return nil }

// Redial implements elastic.Network. Nothing gets stuck here.
func (m *Member) Redial(elastic.ID) {}

// Events implements elastic.Network.
func (m *Member) Events() <-chan elastic.PeerEvent { return m.events }

// pump hands the queue to the reader of Events until the member leaves.
func (m *Member) pump() {
	defer close(m.events)
	for {
		batch := m.take()
		if batch == nil {
			return
		}
		for _, e := range batch {
			select {
			case m.events <- e:
			case <-m.gone:
				return
			}
		}
	}
}

// take waits for events, and returns nil once the member has left.
func (m *Member) take() []elastic.PeerEvent {
	m.network.mu.Lock()
	defer m.network.mu.Unlock()
	for len(m.queue) == 0 && m.left == nil {
		m.queued.Wait()
	}
	if m.left != nil {
		return nil
	}
	batch := m.queue
	m.queue = nil
	return batch
}

// Close takes the member off the network: its Events are closed, its peers see a
// PeerDown. Its transports are their owners' to close.
func (m *Member) Close() error {
	m.leave(errors.New("closed"))
	return nil
}

// leave takes the member off the network and returns the transports it has entered.
func (m *Member) leave(why error) []*Transport {
	broken, first := m.markLeft(why)
	if !first {
		return nil
	}
	close(m.gone)
	for s := range broken {
		s.end(fmt.Errorf("mem: member %s: %w", m.id.Short(), why))
	}
	for _, e := range m.network.abandon(m.id, why) {
		close(e.over)
	}
	return m.ends // nobody adds to them after markLeft
}

// markLeft is the part of leave that needs the lock. It returns the answers that this
// breaks off; first is false if the member had left before.
func (m *Member) markLeft(why error) (broken map[*stream]bool, first bool) {
	m.network.mu.Lock()
	defer m.network.mu.Unlock()
	if m.left != nil {
		return nil, false
	}
	m.left = why
	m.queue = nil
	m.queued.Signal()
	for other := range m.up {
		delete(other.up, m)
		other.pushLocked(elastic.PeerEvent{Peer: m.id, Kind: elastic.PeerDown, Err: why})
	}
	broken, m.streams = m.streams, nil
	for s := range broken {
		for _, other := range s.ends {
			delete(other.streams, s)
		}
	}
	return broken, true
}
