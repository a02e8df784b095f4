package simnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
)

// parkTime is how long a member that skips a view lets those wait who have entered it.
const parkTime = 30 * time.Second

// attempt is a Connect in progress. The higher rank of a pair says hello to the lower one,
// who answers when it has entered the view, too. There is no barrier at the end: a member
// that fails breaks its connections, which revokes those that have begun.
type attempt struct {
	node *node
	view elastic.View
	hash [32]byte
	self int
	over chan struct{} // closed when all are connected, or err is set

	// Guarded by the network's mu.
	said    []*end // connections that began with a hello of this rank
	ends    []*end // by rank, those that the other side has agreed to
	missing int
	ended   bool
	err     error
}

// hello is how a rank begins the connection with a lower one.
type hello struct {
	end     *end // of the sender
	epoch   uint64
	hash    [32]byte
	attempt *attempt
	rank    int // of the receiver
}

// Connect implements elastic.Network.
func (m *node) Connect(ctx context.Context, v elastic.View, self int) (transport.Transport, error) {
	t, err := m.connect(ctx, v, self)
	if err != nil {
		return nil, fmt.Errorf("simnet: connect rank %d of %v: %w", self, v, err)
	}
	return t, nil
}

// connect waits until the attempt has ended, one way or the other.
func (m *node) connect(ctx context.Context, v elastic.View, self int) (*viewTransport, error) {
	if self < 0 || self >= len(v.Members) || v.Members[self].ID != m.self.ID {
		return nil, fmt.Errorf("%w: %s is not that rank", collective.ErrArgument, m.self.ID.Short())
	}
	if err := m.gate(ctx); err != nil {
		return nil, err
	}
	a := &attempt{node: m, view: v, hash: v.Hash(), self: self, over: make(chan struct{}),
		ends: make([]*end, len(v.Members)), missing: len(v.Members) - 1}
	if err := a.enter(); err != nil {
		return nil, err
	}
	select {
	case <-a.over:
	case <-ctx.Done():
		a.giveUp(context.Cause(ctx))
	case <-m.gone:
	}
	return a.leave()
}

// enter registers the attempt and says hello.
func (a *attempt) enter() error {
	m := a.node
	n := m.net
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case m.dead != nil:
		return m.deadLocked()
	case a.view.Epoch < m.floor:
		return fmt.Errorf("epoch %d is over", a.view.Epoch)
	case m.tries[a.hash] != nil:
		return errors.New("already connecting")
	}
	for rank, other := range a.view.Members {
		if why := m.lost[other.ID]; why != nil {
			return a.lossOf(rank, why)
		}
	}
	m.tries[a.hash] = a
	m.floor = a.view.Epoch
	for rank := range a.view.Members {
		a.greetLocked(rank)
	}
	for _, h := range m.early[a.hash] {
		a.claimLocked(h)
	}
	delete(m.early, a.hash)
	n.clock.at(time.Now().Add(parkTime), m.refuseOld)
	if a.missing == 0 {
		a.endLocked(nil)
	}
	return nil
}

// greetLocked says hello to a lower rank. Of a higher one it only asks whether it lives.
func (a *attempt) greetLocked(rank int) {
	m, n := a.node, a.node.net
	if rank == a.self {
		return
	}
	id := a.view.Members[rank].ID
	l := n.linkLocked(m.self.ID, id)
	f := frame{size: overhead, deliver: func() {},
		refuse: func() { n.refuseFor(id, m, Data, func() { a.fail(a.lossOf(rank, errRefused)) }) }}
	if rank < a.self {
		e := newEnd(m, l, rank, id)
		h := &hello{end: e, epoch: a.view.Epoch, hash: a.hash, attempt: a, rank: rank}
		a.said = append(a.said, e)
		m.wires[e] = true
		f.deliver = func() { n.find(id).greeted(h) }
	}
	l.submitLocked(l.urgent[Data], f)
}

// greeted is the arrival of a hello: it is answered now, when this member enters the
// view, or never.
func (m *node) greeted(h *hello) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	switch a := m.tries[h.hash]; {
	case h.epoch < m.floor:
		m.rejectLocked(h)
	case a != nil && !a.ended:
		a.claimLocked(h)
	default:
		m.early[h.hash] = append(m.early[h.hash], h)
	}
}

// rejectLocked refuses a hello of an epoch that is over.
func (m *node) rejectLocked(h *hello) {
	from := h.end.node
	l := m.net.linkLocked(m.self.ID, from.self.ID)
	why := h.attempt.lossOf(h.rank, errors.New("refused: the epoch is over"))
	l.submitLocked(l.urgent[Data], frame{size: overhead, deliver: func() { h.attempt.fail(why) }})
}

// refuseOld answers those that have waited too long in a view that this member skipped.
func (m *node) refuseOld() {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	var old []*hello
	for hash, hs := range m.early {
		if hs[0].epoch < m.floor {
			old = append(old, hs...)
			delete(m.early, hash)
		}
	}
	slices.SortFunc(old, func(a, b *hello) int { // maps have no order, the network should
		return cmp.Compare(a.end.node.self.ID, b.end.node.self.ID)
	})
	for _, h := range old {
		if !h.end.withdrawn {
			m.rejectLocked(h)
		}
	}
}

// claimLocked makes this member's end of the connection and answers. A hello that comes
// again replaces the first, of which its sender has despaired.
func (a *attempt) claimLocked(h *hello) {
	rank := a.view.Rank(h.end.node.self.ID)
	if h.end.withdrawn || rank <= a.self {
		return
	}
	m := a.node
	l := m.net.linkLocked(m.self.ID, h.end.node.self.ID)
	e := newEnd(m, l, rank, h.end.node.self.ID)
	e.other, h.end.other = h.end, e
	m.wires[e] = true
	a.putLocked(e)
	l.submitLocked(l.urgent[Data], frame{size: overhead, deliver: func() { h.attempt.answered(h.end) }})
}

// answered is the arrival of the answer to a hello.
func (a *attempt) answered(e *end) {
	a.node.net.mu.Lock()
	defer a.node.net.mu.Unlock()
	if !a.ended {
		a.putLocked(e)
	}
}

// putLocked adds a connection.
func (a *attempt) putLocked(e *end) {
	if old := a.ends[e.rank]; old == nil {
		a.missing--
	} else {
		old.closeLocked()
	}
	a.ends[e.rank] = e
	if a.missing == 0 {
		a.endLocked(nil)
	}
}

// fail ends the attempt with err, unless it has ended.
func (a *attempt) fail(err error) {
	a.node.net.mu.Lock()
	defer a.node.net.mu.Unlock()
	a.endLocked(err)
}

// giveUp ends the attempt because of cause, which is the end of a ctx. The first member
// that is missing is to blame, unless the caller gave up of its own will.
func (a *attempt) giveUp(cause error) {
	a.node.net.mu.Lock()
	defer a.node.net.mu.Unlock()
	err := cause
	if rank := slices.Index(a.otherEnds(), nil); rank >= 0 && errors.Is(cause, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", a.lossOf(rank, errors.New("did not connect in time")), cause)
	}
	a.endLocked(err)
}

// otherEnds returns ends with something in the place of this rank.
func (a *attempt) otherEnds() []*end {
	out := slices.Clone(a.ends)
	out[a.self] = &end{}
	return out
}

// endLocked decides the attempt. A failure breaks all of its connections.
func (a *attempt) endLocked(err error) {
	if a.ended {
		return
	}
	a.ended, a.err = true, err
	if err != nil {
		for _, e := range append(a.said, a.ends...) {
			if e != nil && !e.closed {
				e.withdrawLocked()
			}
		}
	}
	close(a.over)
}

// leave undoes enter. After a success hellos of this epoch and older are refused.
func (a *attempt) leave() (*viewTransport, error) {
	m := a.node
	m.net.mu.Lock()
	if m.tries[a.hash] == a {
		delete(m.tries, a.hash)
	}
	err := a.err
	if m.dead != nil {
		err = m.deadLocked()
		a.endLocked(err)
	}
	if err == nil {
		m.floor = max(m.floor, a.view.Epoch+1)
	}
	m.net.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return newTransport(a), nil
}

// lossOf returns the loss of a rank.
func (a *attempt) lossOf(rank int, why error) error {
	return &transport.PeerError{Rank: rank, Peer: a.view.Members[rank].ID.Short(), Cause: why.Error()}
}
