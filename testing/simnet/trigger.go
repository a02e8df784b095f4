package simnet

import (
	"errors"
	"slices"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/mesh"
)

// errKilled is why a killed member is off the network.
var errKilled = errors.New("killed")

// plan is a kill to come, of KillAt.
type plan struct {
	rank int
	step int64
}

// rankInView is where a member stands, as its own events tell.
type rankInView struct {
	id   elastic.ID
	rank int
}

// KillWhen calls f with every message that a member is about to send, and kills the member
// if f returns true: the message is not sent. f replaces an earlier one; nil ends it. It
// is called in the sender's goroutine, without locks, at times by several senders at once;
// it may use the network, for example to Kill the receiver.
func (n *Network) KillWhen(f func(Message) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hook = f
}

// Sent returns how many messages a member has sent on a plane: the Number of the last.
// A run without faults tells so at how many points another can be disturbed.
func (n *Network) Sent(id elastic.ID, plane Plane) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if m := n.nodes[id]; m != nil {
		return m.sent[plane]
	}
	return 0
}

// observe counts a message and kills its sender if KillWhen's function wants that.
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

// Sending implements mesh.Observer. A message is taken for sent when this member's process
// comes so far.
func (s *stream) Sending(o mesh.Outgoing) (lost bool, err error) {
	err = s.node.observe(Message{To: s.peer, Plane: s.out.plane, Bytes: o.Bytes, Epoch: o.Epoch, Envelope: o.Envelope, Payload: o.Payload})
	if err != nil || s.kind != mesh.Control {
		return false, err
	}
	return s.draw(), nil
}

// KillAt kills the member that has that rank of its view when it begins the step, once.
// The network learns of steps by Begin, or from the event log by Sink.
func (n *Network) KillAt(rank int, step int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.plans = append(n.plans, plan{rank, step})
}

// Begin tells that a member, of that rank in its view, begins a step.
func (n *Network) Begin(id elastic.ID, rank int, step int64) {
	if n.due(func(p plan) bool { return p == plan{rank, step} }) {
		n.Kill(id)
	}
}

// due takes out the first plan for which f is true, and reports whether there was one.
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

// Sink returns a sink that watches the events of members for KillAt and passes them on
// to inner. A trainer reports a step at the end of the next one, when it is stable. So a
// kill at step s comes as the member ends s-1, at step 1 when it enters its session, and
// at step 2, of which no report tells, a step late.
func (n *Network) Sink(inner event.Sink) event.Sink { return sink{n, inner} }

// sink implements event.Sink.
type sink struct {
	net   *Network
	inner event.Sink
}

// Emit passes e on, then kills its member if that is due.
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

// entered notes the rank of the member with that short ID.
func (n *Network) entered(short string, rank int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id := range n.nodes {
		if id.Short() == short {
			n.seen[short] = &rankInView{id, rank}
		}
	}
}

// reached kills the member with that short ID if it should not get further than step.
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
