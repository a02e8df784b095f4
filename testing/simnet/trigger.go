package simnet

import (
	"errors"
	"slices"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/mesh"
)

// errKilled is the cause of a member that was killed.
var errKilled = errors.New("killed")

// plan is a kill that KillAt has requested.
type plan struct {
	rank int
	step int64
}

// rankInView is the rank of a member, according to its own events.
type rankInView struct {
	id   elastic.ID
	rank int
}

// KillWhen calls f with every message that a member is about to send. If f returns true, the member is killed and the message is
// not sent. f replaces an earlier function; nil removes it. f runs in the sender's goroutine, without locks, and several senders
// may call it at the same time. It may use the network, for example to Kill the receiver.
func (n *Network) KillWhen(f func(Message) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hook = f
}

// Sent returns how many messages a member has sent on a plane, which is the Number of the last one.
// After a run without faults, this is the number of messages at which KillWhen can kill in another
// run.
func (n *Network) Sent(id elastic.ID, plane Plane) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if m := n.nodes[id]; m != nil {
		return m.sent[plane]
	}
	return 0
}

// observe counts a message, and kills its sender if the function of KillWhen returns true.
func (m *node) observe(msg Message) error {
	n := m.net
	n.mu.Lock()
	m.sent[msg.Plane]++
	msg.From, msg.Number = m.self.ID, m.sent[msg.Plane]
	hook, dead := n.hook, m.dead
	n.mu.Unlock()
	if dead == nil && hook != nil && hook(msg) {
		n.Kill(m.self.ID)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if m.dead != nil {
		return m.deadLocked()
	}
	return nil
}

// Sending implements mesh.Observer. A message counts as sent when the process of this member writes it.
func (s *stream) Sending(o mesh.Outgoing) (lost bool, err error) {
	err = s.node.observe(Message{To: s.peer, Plane: s.out.plane, Bytes: o.Bytes, Epoch: o.Epoch, Envelope: o.Envelope, Payload: o.Payload})
	if err != nil || s.kind != mesh.Control {
		return false, err
	}
	return s.draw(), nil
}

// KillAt kills the member with the given rank in its view when it begins the step, once. The
// program reports steps by calling Begin, or by events that pass through Sink.
func (n *Network) KillAt(rank int, step int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.plans = append(n.plans, plan{rank, step})
}

// Begin tells the network that a member, which has the given rank in its view, begins a step.
func (n *Network) Begin(id elastic.ID, rank int, step int64) {
	if n.due(func(p plan) bool { return p == plan{rank, step} }) {
		n.Kill(id)
	}
}

// due removes the first plan for which f is true, and reports whether there was one.
func (n *Network) due(f func(plan) bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.plans, f)
	if i < 0 {
		return false
	}
	n.plans = slices.Delete(n.plans, i, i+1)
	return true
}

// Sink returns a sink that watches the events of members for KillAt, and passes the events to
// inner. A trainer reports a step only when it is stable, at the end of the next one. So a kill at
// step s happens when the member ends step s-1. A kill at step 1 happens when the member enters its
// session. A kill at step 2 happens one step late, because no report precedes it.
func (n *Network) Sink(inner event.Sink) event.Sink { return sink{n, inner} }

// sink implements event.Sink.
type sink struct {
	net   *Network
	inner event.Sink
}

// Emit passes e on. Then it kills the member of e if a kill is due.
func (s sink) Emit(e event.Event) {
	s.inner.Emit(e)
	switch body := e.Body.(type) {
	case event.View:
		s.net.entered(e.Peer, slices.Index(body.Members, e.Peer))
		s.net.reached(e.Peer, 1)
	case event.Step:
		s.net.reached(e.Peer, e.Step+2)
	}
}

// entered records the rank of the member with a short ID.
func (n *Network) entered(short string, rank int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id := range n.nodes {
		if id.Short() == short {
			n.seen[short] = &rankInView{id, rank}
		}
	}
}

// reached kills the member with a short ID if a kill is due at this step or earlier.
func (n *Network) reached(short string, step int64) {
	n.mu.Lock()
	at := n.seen[short]
	n.mu.Unlock()
	if at == nil {
		return
	}
	if n.due(func(p plan) bool { return p.rank == at.rank && p.step <= step }) {
		n.Kill(at.id)
	}
}
