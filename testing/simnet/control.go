package simnet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elrun/elrun/elastic"
)

// peer is what a member knows of its control connection with another.
type peer struct {
	up   bool
	out  *pipe // while it is up
	dial *dial // under way
}

// dial is an attempt to connect, of which there is one at a time per peer. It ends
// with an answer, be it after a cut has healed; who waits for it may give up before.
type dial struct {
	done chan struct{}
	err  error // set before done is closed
}

// reorderTime is the least by which a message may be overtaken.
const reorderTime = 10 * time.Millisecond

// Send implements elastic.Network.
func (m *node) Send(ctx context.Context, to elastic.ID, msg []byte) error {
	if err := m.send(ctx, to, msg); err != nil {
		return fmt.Errorf("simnet: send to %s: %w", to.Short(), err)
	}
	return nil
}

// send connects where needed, again if the connection breaks meanwhile.
func (m *node) send(ctx context.Context, to elastic.ID, msg []byte) error {
	switch {
	case len(msg) > elastic.MaxControl:
		return fmt.Errorf("message of %d bytes, at most %d", len(msg), elastic.MaxControl)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case to == m.self.ID:
		return errors.New("a member cannot connect to itself")
	}
	if err := m.gate(ctx); err != nil {
		return err
	}
	if err := m.observe(Message{To: to, Plane: Control, Bytes: len(msg), Payload: msg}); err != nil {
		return err
	}
	for {
		out, err := m.reach(ctx, to)
		if err != nil {
			return err
		}
		if err = m.post(ctx, out, msg); err != errEnded {
			return err
		}
	}
}

// reach returns the stream to a member, and connects if there is none.
func (m *node) reach(ctx context.Context, to elastic.ID) (*pipe, error) {
	for {
		out, d, err := m.beginReach(to)
		if d == nil {
			return out, err
		}
		select {
		case <-d.done:
			if d.err != nil {
				return nil, d.err
			}
		case <-m.gone:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// beginReach returns the stream, or a dial to wait for.
func (m *node) beginReach(to elastic.ID) (*pipe, *dial, error) {
	n := m.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if m.dead != nil {
		return nil, nil, m.deadLocked()
	}
	p := m.peerLocked(to)
	switch {
	case p.up:
		return p.out, nil, nil
	case p.dial != nil:
		return nil, p.dial, nil
	}
	d := &dial{done: make(chan struct{})}
	p.dial = d
	l := n.linkLocked(m.self.ID, to)
	l.submitLocked(l.urgent[Control], frame{size: overhead,
		deliver: func() { n.find(to).acceptDial(m, d) },
		refuse:  func() { n.refuseFor(to, m, Control, func() { m.dialed(to, d, errRefused) }) },
	})
	return nil, d, nil
}

// peerLocked returns what is known of a member.
func (m *node) peerLocked(id elastic.ID) *peer {
	p := m.peers[id]
	if p == nil {
		p = &peer{}
		m.peers[id] = p
	}
	return p
}

// find returns the node of a member, nil if it is not there yet.
func (n *Network) find(id elastic.ID) *node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes[id]
}

// refuseFor answers m for the member to, which is dead; the answer is what tell does.
func (n *Network) refuseFor(to elastic.ID, m *node, plane Plane, tell func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	back := n.linkLocked(to, m.self.ID)
	back.submitLocked(back.urgent[plane], frame{size: overhead, final: true, deliver: tell})
}

// acceptDial is the arrival of a dial at the member that is dialled.
func (m *node) acceptDial(from *node, d *dial) {
	n := m.net
	n.mu.Lock()
	defer n.mu.Unlock()
	m.upLocked(from.self.ID)
	back := n.linkLocked(m.self.ID, from.self.ID)
	back.submitLocked(back.urgent[Control], frame{size: overhead, deliver: func() { from.dialed(m.self.ID, d, nil) }})
}

// dialed is the arrival of the answer, with err at a refusal. The connection may have been
// made meanwhile from the other side, which has ended the dial.
func (m *node) dialed(to elastic.ID, d *dial, err error) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	p := m.peerLocked(to)
	if err == nil {
		m.upLocked(to)
	}
	if p.dial == d {
		p.dial, d.err = nil, err
		close(d.done)
	}
}

// upLocked makes the connection with a member, unless there is one.
func (m *node) upLocked(id elastic.ID) {
	p := m.peerLocked(id)
	if p.up {
		return
	}
	p.up = true
	p.out = m.net.linkLocked(m.self.ID, id).addPipeLocked(Control)
	m.pushLocked(elastic.PeerEvent{Peer: id, Kind: elastic.PeerUp}, nil)
	if p.dial != nil {
		close(p.dial.done)
		p.dial = nil
	}
}

// downLocked ends the connection with a member, if there is one.
func (m *node) downLocked(id elastic.ID, why error) {
	p := m.peerLocked(id)
	if !p.up {
		return
	}
	p.up = false
	p.out.breakLocked()
	m.pushLocked(elastic.PeerEvent{Peer: id, Kind: elastic.PeerDown, Err: why}, nil)
}

// post writes one message, with the bad luck of its link.
func (m *node) post(ctx context.Context, out *pipe, msg []byte) error {
	data := append([]byte(nil), msg...)
	lost, twice, f := m.fate(out, data)
	if lost {
		return nil
	}
	err := out.write(ctx, f, m.gone, nil)
	if err != nil || !twice {
		return err
	}
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	to := out.link.to
	// The copy takes no part in the window.
	f = frame{size: f.size, loose: true, deliver: func() { m.net.find(to).hear(m.self.ID, append([]byte(nil), data...), nil) }}
	out.link.submitLocked(out, f)
	return nil
}

// fate draws what happens to a message.
func (m *node) fate(out *pipe, data []byte) (lost, twice bool, f frame) {
	l := out.link
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	k := l.rules[Control].link
	size := len(data) + overhead
	f = frame{size: size, deliver: func() { l.net.find(l.to).hear(l.from, data, func() { out.read(size) }) }}
	if l.chanceLocked(k.Reorder) {
		f.loose = true
		f.extra = l.drawLocked(max(k.Delay+k.Lag, reorderTime))
	}
	return l.chanceLocked(k.Loss), l.chanceLocked(k.Duplicate), f
}

// hear is the arrival of a message, which may come before the answer to the dial.
func (m *node) hear(from elastic.ID, data []byte, read func()) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	m.upLocked(from)
	m.pushLocked(elastic.PeerEvent{Peer: from, Kind: elastic.PeerMessage, Data: data}, read)
}
