package simnet

import (
	"context"
	"fmt"
	"slices"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/mesh"
)

// errRefused means that the member has left the network.
var errRefused = fmt.Errorf("connection refused: %w", elastic.ErrGone)

// opening is a stream that the peer has not accepted yet.
type opening struct {
	s     *stream
	ended chan struct{} // closed when the peer has answered, or the stream has ended
	err   error         // set before ended is closed
}

// Open implements mesh.Carrier. It takes one frame to the peer and one back. Over a cut it waits
// until the cut is healed. If the peer does not exist yet, Open waits for it.
func (n *node) Open(ctx context.Context, to elastic.ID, k mesh.Kind) (mesh.Stream, error) {
	o, err := n.beginOpen(ctx, to, k)
	if err != nil {
		return nil, err
	}
	select {
	case <-o.ended:
		if o.err != nil {
			return nil, o.err
		}
		return o.s, nil
	case <-n.gone:
		return nil, n.closedError()
	case <-ctx.Done():
		o.giveUp()
		return nil, context.Cause(ctx)
	}
}

// beginOpen asks the peer to accept a stream. While this member is stopped, beginOpen waits.
func (m *node) beginOpen(ctx context.Context, to elastic.ID, k mesh.Kind) (*opening, error) {
	if to == m.self.ID {
		return nil, fmt.Errorf("a member cannot connect to itself: %w", mesh.ErrBadID)
	}
	if err := m.gate(ctx); err != nil {
		return nil, err
	}
	n := m.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if m.dead != nil {
		return nil, m.deadLocked()
	}
	o := &opening{s: m.newStreamLocked(to, k), ended: make(chan struct{})}
	o.s.opening = o
	l, plane := o.s.out.link, o.s.out.plane
	l.submitLocked(l.urgent[plane], frame{size: overhead, process: true,
		deliver: func() { n.find(to).accept(o) },
		refuse:  func() { n.refuseFor(to, m, plane, func() { o.answer(errRefused) }) },
	})
	return o, nil
}

// gate waits while the member is stopped, because a stopped process would not have made this call.
func (n *node) gate(ctx context.Context) error {
	for {
		running, err := n.state()
		if running == nil {
			return err
		}
		select {
		case <-running:
		case <-n.gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// state returns an error if the member is off the network. If the member is stopped, state returns a channel that is closed when
// it continues.
func (n *node) state() (running <-chan struct{}, err error) {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	if n.dead != nil {
		return nil, n.deadLocked()
	}
	if n.stopped {
		return n.running, nil
	}
	return nil, nil
}

// accept handles the arrival of an opening at the peer: it creates the peer's side of the stream, and answers.
func (m *node) accept(o *opening) {
	n := m.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if m.dead != nil || o.s.writeEnd != nil {
		return // the opener has given up
	}
	s := m.newStreamLocked(o.s.node.self.ID, o.s.kind)
	s.other, o.s.other = o.s, s
	l := s.out.link
	l.submitLocked(l.urgent[s.out.plane], frame{size: overhead, deliver: func() { o.answer(nil) }})
	take := m.take
	m.takes.Go(func() { take(s.kind, s) })
}

// answer handles the arrival of the answer to an opening. err is not nil if the peer refuses.
func (o *opening) answer(err error) {
	o.s.node.net.mu.Lock()
	defer o.s.node.net.mu.Unlock()
	if err != nil {
		o.s.cutOffLocked(err)
	}
	o.endLocked(err)
}

// endLocked ends the wait for an answer.
func (o *opening) endLocked(err error) {
	if o.s.opening == o {
		o.s.opening, o.err = nil, err
		close(o.ended)
	}
}

// giveUp ends a stream at both sides, because the context of Open has ended.
func (o *opening) giveUp() {
	n := o.s.node.net
	n.mu.Lock()
	defer n.mu.Unlock()
	o.s.breakLocked(errEnded)
	l := o.s.out.link
	l.submitLocked(l.urgent[o.s.out.plane], frame{size: overhead, deliver: o.s.reset})
}

// refuseFor sends a refusal to the node m on behalf of the member to, which is dead. tell is called when the refusal arrives.
func (n *Network) refuseFor(to elastic.ID, m *node, plane Plane, tell func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	back := n.linkLocked(to, m.self.ID)
	back.submitLocked(back.urgent[plane], frame{size: overhead, final: true, deliver: tell})
}

// HangUp implements mesh.Carrier. Data streams have connections of their own, and are not closed.
func (n *node) HangUp(peer elastic.ID) {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	for _, s := range n.streamsLocked(peer) {
		if s.kind != mesh.Data {
			s.resetLocked()
		}
	}
}

// streamsLocked returns the streams with a peer, in the order of creation.
func (n *node) streamsLocked(peer elastic.ID) (all []*stream) {
	for s := range n.streams {
		if s.peer == peer {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *stream) int { return int(a.number) - int(b.number) })
	return all
}
