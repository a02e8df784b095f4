package simnet

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/elrun/elrun/elastic"
)

// rule sets the properties of the links to which it applies.
type rule struct {
	from, to elastic.ID
	planes   []Plane
	link     Link
}

// cut names a link on one plane, or several links if a member is Any.
type cut struct {
	from, to elastic.ID
	plane    Plane
}

// ruleLocked returns the rule for a link on one plane: the latest rule that applies to it.
func (n *Network) ruleLocked(from, to elastic.ID, plane Plane) *rule {
	for i := len(n.rules) - 1; i >= 0; i-- {
		r := n.rules[i]
		if (r.from == Any || r.from == from) && (r.to == Any || r.to == to) && slices.Contains(r.planes, plane) {
			return r
		}
	}
	return nil // not reached: the first rule applies to every link
}

// SetLink changes the link from one member to another on the given planes. Any stands for all
// members. If several calls apply to a link, the last one counts. Planes that one call names share
// the Bandwidth. Frames in flight are not affected.
func (n *Network) SetLink(from, to elastic.ID, k Link, planes ...Plane) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := &rule{from, to, slices.Clone(all(planes)), k}
	n.rules = slices.DeleteFunc(n.rules, func(o *rule) bool {
		return o.from == r.from && o.to == r.to && slices.Equal(o.planes, r.planes)
	})
	n.rules = append(n.rules, r)
	for _, l := range n.order {
		l.refreshLocked()
	}
}

// cutLocked reports whether the link is cut on a plane.
func (n *Network) cutLocked(from, to elastic.ID, plane Plane) bool {
	if n.groups != nil && n.groups[from] != n.groups[to] {
		return true
	}
	if len(n.cuts) == 0 {
		return false
	}
	return n.cuts[cut{from, to, plane}] || n.cuts[cut{Any, to, plane}] ||
		n.cuts[cut{from, Any, plane}] || n.cuts[cut{Any, Any, plane}]
}

// Cut makes the link from one member to another a black hole, on the given planes: frames on it do
// not arrive, and neither member gets an error. Senders can write until their windows are full. Any
// stands for all members.
func (n *Network) Cut(from, to elastic.ID, planes ...Plane) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range all(planes) {
		n.cuts[cut{from, to, p}] = true
	}
}

// Mend undoes a Cut of the same members. Bytes that streams have accepted during the cut are then
// delivered.
func (n *Network) Mend(from, to elastic.ID, planes ...Plane) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range all(planes) {
		delete(n.cuts, cut{from, to, p})
	}
	n.releaseLocked()
}

// Partition cuts the links between members of different groups, and replaces an earlier partition.
// Members that are in none of the groups, including members that join later, form another group.
func (n *Network) Partition(groups ...[]elastic.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.groups = make(map[elastic.ID]int)
	for i, ids := range groups {
		for _, id := range ids {
			n.groups[id] = i + 1
		}
	}
	n.releaseLocked()
}

// Heal ends the partition and undoes all cuts.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.groups = nil
	clear(n.cuts)
	n.releaseLocked()
}

// releaseLocked resumes the traffic on all links whose cuts have ended.
func (n *Network) releaseLocked() {
	for _, l := range n.order {
		l.releaseLocked()
	}
}

// Stop stops a member as SIGSTOP stops a process, as far as a network can simulate that. The member
// neither sends nor reads, and its calls wait. Its connections stay open, and their windows fill.
// The code of the member continues to run until its next call.
func (n *Network) Stop(id elastic.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if m := n.nodes[id]; m != nil && !m.stopped && m.dead == nil {
		m.stopped, m.stoppedAt = true, time.Now()
		m.running = make(chan struct{})
	}
}

// Continue undoes Stop. The member then reads the bytes that have arrived meanwhile.
func (n *Network) Continue(id elastic.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.nodes[id]
	if m == nil || !m.stopped || m.dead != nil {
		return
	}
	m.stopped = false
	close(m.running)
	waiting := m.parked
	m.parked = nil
	for _, p := range waiting {
		p.pipe.link.submitLocked(p.pipe, p.frame)
	}
	m.wakeLocked()
	m.resumeLocked()
}

// Kill ends a member as SIGKILL ends a process. Its calls fail with transport.ErrClosed. After
// ResetDelay its connections break at all members that can be reached; at a member behind a cut
// they break when the cut is healed. Later dials to the dead member are refused.
func (n *Network) Kill(id elastic.ID) {
	if m := n.find(id); m != nil {
		m.quit(errKilled)
	}
}

// Gone returns a channel that is closed when the member is off the network, because it was killed
// or closed. It is nil for a member that does not exist yet. The goroutines of a killed member
// continue to run, although a real process would be dead. A test can use the channel to end them.
func (n *Network) Gone(id elastic.ID) <-chan struct{} {
	if m := n.find(id); m != nil {
		return m.gone
	}
	return nil
}

// end takes a member off the network.
func (n *Network) end(m *node) {
	n.mu.Lock()
	var after []func()
	if m.dead == nil {
		after = n.endLocked(m)
	}
	n.mu.Unlock()
	for _, f := range after {
		f()
	}
}

// endLocked marks the member as gone, drops the frames that it has not yet put on the wire, and
// notifies the others. It returns functions that the caller must call without the lock.
func (n *Network) endLocked(m *node) (after []func()) {
	m.dead = cmp.Or(m.cause, errClosed)
	if m.stopped {
		m.stopped = false
		close(m.running)
	}
	close(m.gone)
	for _, f := range m.deferred {
		if f.refuse != nil {
			after = append(after, f.refuse)
		}
	}
	m.parked, m.deferred = nil, nil
	for _, l := range n.order {
		if l.from == m.self.ID {
			l.dropLocked()
		}
	}
	if !n.closed {
		n.clock.at(time.Now().Add(n.config.ResetDelay), func() { n.spread(m) })
	}
	m.wakeLocked()
	return after
}

// spread breaks the connections of a dead member at all other members.
func (n *Network) spread(m *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, other := range n.sortedLocked() {
		if other == m || other.dead != nil {
			continue
		}
		l := n.linkLocked(m.self.ID, other.self.ID)
		for p := range planes {
			l.submitLocked(l.urgent[p], frame{size: overhead, final: true, deliver: func() { other.loses(m, p) }})
		}
	}
}

// Reset breaks all connections between two members on the given planes, as when a firewall loses
// its state. Both members get an error, and may connect again.
func (n *Network) Reset(a, b elastic.ID, planes ...Plane) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x, y := n.nodes[a], n.nodes[b]
	if x == nil || y == nil || x.dead != nil || y.dead != nil {
		return
	}
	for _, p := range all(planes) {
		x.losesLocked(y, p)
		y.losesLocked(x, p)
	}
}

// loses is called when a member learns, on one plane, that another member is gone.
func (n *node) loses(gone *node, plane Plane) {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	n.losesLocked(gone, plane)
}

// losesLocked ends, at this side, the streams with another member on one plane. Bytes that have
// arrived before can still be read.
func (n *node) losesLocked(other *node, plane Plane) {
	for _, s := range n.streamsLocked(other.self.ID) {
		if s.out.plane != plane || s.other == nil {
			continue
		}
		if errors.Is(other.dead, errClosed) {
			s.endReadLocked(io.EOF)
		}
		s.cutOffLocked(errReset)
	}
}
