package simnet

import "errors"

// loses is the arrival, on one plane, of the news that another member is gone.
func (m *node) loses(gone *node, plane Plane) {
	why := errReset
	if errors.Is(gone.dead, errClosed) { // set for good before it was sent
		why = errors.New("connection closed")
	}
	if plane == Data {
		m.mourn(gone, why)
	}
	m.breakWith(gone, plane, why)
}

// mourn fails the Connects that wait for a member which is gone.
func (m *node) mourn(gone *node, why error) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	m.lost[gone.self.ID] = why
	for _, a := range m.tries {
		if rank := a.view.Rank(gone.self.ID); rank >= 0 {
			a.endLocked(a.lossOf(rank, why))
		}
	}
}

// breakWith breaks the connections with another member on one plane, at this side.
func (m *node) breakWith(other *node, plane Plane, why error) {
	ends, asked, owing := m.linksWith(other, plane, why)
	for _, e := range ends {
		e.breakOff(why)
	}
	for _, s := range asked {
		s.end(why)
	}
	for _, s := range owing {
		s.hangUp(why)
	}
}

// linksWith ends the control connection with another member, or returns what there is
// on another plane.
func (m *node) linksWith(other *node, plane Plane, why error) (ends []*end, asked, owing []*stream) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	id := other.self.ID
	switch plane {
	case Control:
		m.downLocked(id, why)
	case Data:
		for e := range m.wires {
			if e.peer == id {
				ends = append(ends, e)
			}
		}
	case Bulk:
		for s := range m.asked {
			if s.to == id {
				asked = append(asked, s)
			}
		}
		for s := range m.owing {
			if s.asker == other {
				owing = append(owing, s)
			}
		}
	}
	return ends, asked, owing
}

// failLocked ends what a member that has just died was doing. It returns what has to be
// done without the lock.
func (m *node) failLocked() (after []func()) {
	err := m.deadLocked()
	for _, a := range m.tries {
		a.endLocked(err)
	}
	boxes := make(map[*viewTransport]bool)
	for e := range m.wires {
		if e.t != nil && !boxes[e.t] {
			boxes[e.t] = true
			after = append(after, func() { e.t.box.Fail(err) })
		}
	}
	for s := range m.asked {
		after = append(after, func() { s.abort(err) })
	}
	for s := range m.owing {
		after = append(after, func() { s.hangUp(err) })
	}
	return after
}
