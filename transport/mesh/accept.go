package mesh

import (
	"context"
	"slices"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/wire"
)

const (
	// helloTime is how long a member may take to say hello on a stream that it opened, and to
	// agree on a better path. Both take long where many peers of one host connect at once. A side
	// that gives up too early breaks a session that has already begun at the other side.
	helloTime = time.Minute
	// parkTime is how long a stream waits for this host to enter its view.
	parkTime = time.Minute
	// maxParked is how many streams of one peer may wait: the streams and one knock for each of two views.
	maxParked = 2 * (streamsPerPair + 1)
)

// parkedStream waits for a Connect of its view.
type parkedStream struct {
	peer    elastic.ID
	lineage [32]byte
	claimed chan *attempt // of one element, so that claiming never blocks
}

// acceptLine handles a stream of frames that a member opened. It gives the stream to the attempt of its
// view, for which it waits if necessary, or refuses the stream.
func (m *Mesh) acceptLine(k Kind, s Stream) {
	if err := s.SetReadDeadline(time.Now().Add(helloTime)); err != nil {
		_ = s.Reset()
		return
	}
	g, err := readHello(s)
	if err != nil {
		_ = s.Reset()
		return
	}
	a := m.invite(s, s.Peer(), g)
	switch {
	case a == nil:
		return
	case int(g.Rank) < a.self && k == Urgent:
		m.answerKnock(a, s, g)
		return
	}
	l, ok := m.receive(a, g, int(k-Data), s)
	if ok {
		m.serve(a, l.lane)
	}
}

// receive makes the stream s, on which the hello g came, a lane of the view of a. It returns false if it
// has ended the stream instead.
func (m *Mesh) receive(a *attempt, g wire.Greeting, number int, s Stream) (link, bool) {
	if !a.demand.hold() {
		a.demand.refuse(s)
		return link{}, false
	}
	defer a.demand.holds.Done()
	if int(g.Rank) < a.self {
		refuse(s, refused, nil)
		return link{}, false
	}
	stop := context.AfterFunc(a.demand.life, func() { _ = s.Reset() }) // as a write may be stuck
	l, err := m.admit(a, g, number, s)
	ended := !stop()
	if ended && err == nil {
		_ = l.raw.Reset()
	}
	if ended || err != nil {
		_ = s.Reset()
		return link{}, false
	}
	m.lanes.add(l.lane)
	a.put(int(g.Rank), l)
	return l, true
}

// invite returns the attempt to which the hello g of a peer belongs. If the attempt has not begun, it
// waits for that. If there is no such attempt, it refuses or ends the stream, and returns nil.
func (m *Mesh) invite(s Stream, from elastic.ID, g wire.Greeting) *attempt {
	a, parked, why, cause := m.find(from, g)
	if parked != nil {
		a = m.wait(parked)
	}
	switch {
	case why != wanted:
		refuse(s, why, cause)
	case a == nil:
		_ = s.Reset() // the peer may open it again
	case !m.belongs(a, g, from):
		refuse(s, refused, nil)
	default:
		return a
	}
	return nil
}

// find returns the attempt to which the hello g belongs. If there is none yet, it returns a
// parkedStream to wait on. If there cannot be one, it returns the refusal, and the cause that goes
// with the refusal left.
func (m *Mesh) find(from elastic.ID, g wire.Greeting) (*attempt, *parkedStream, refusal, []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.attempts[g.Lineage]; a != nil {
		return a, nil, wanted, nil
	}
	if cause, ok := m.pastLocked(g.Lineage); ok {
		return nil, nil, left, cause
	}
	for _, a := range m.attempts {
		if a.view.Epoch == g.Epoch && g.Epoch >= m.floor {
			return nil, nil, refused, nil // another view of the epoch that this host is entering
		}
	}
	switch {
	case g.Job != m.cfg.Job:
		return nil, nil, refused, nil
	case g.Epoch < m.floor || m.closed:
		return nil, nil, stale, nil
	}
	// An attempt that begins from now on finds the stream in m.parked.
	p := &parkedStream{peer: from, lineage: g.Lineage, claimed: make(chan *attempt, 1)}
	m.parkLocked(p)
	return nil, p, wanted, nil
}

// wait returns the attempt that claims p. It returns nil if parkTime passes, the mesh
// closes, or the peer parks too many other streams.
func (m *Mesh) wait(p *parkedStream) *attempt {
	timer := time.NewTimer(parkTime)
	defer timer.Stop()
	select {
	case a := <-p.claimed:
		return a
	case <-timer.C:
	case <-m.done:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unparkLocked(p)
	return nil
}

// parkLocked adds p. If the peer has maxParked streams already, p replaces its oldest one, as the peer
// has given up on that one.
func (m *Mesh) parkLocked(p *parkedStream) {
	var oldest *parkedStream
	count := 0
	for _, o := range m.parked {
		if o.peer != p.peer {
			continue
		}
		if count++; oldest == nil {
			oldest = o
		}
	}
	m.parked = append(m.parked, p)
	if count >= maxParked {
		m.unparkLocked(oldest)
		oldest.claimed <- nil // never blocks: an attempt that claims a stream takes it out of m.parked under the lock
	}
}

// unparkLocked forgets p.
func (m *Mesh) unparkLocked(p *parkedStream) {
	m.parked = slices.DeleteFunc(m.parked, func(o *parkedStream) bool { return o == p })
}

// belongs reports whether the hello g is right for the member with the ID from. The carrier has proved
// that ID; the rest of the hello is only a claim of the peer.
func (m *Mesh) belongs(a *attempt, g wire.Greeting, from elastic.ID) bool {
	rank := int(g.Rank)
	return rank != a.self && rank < len(a.view.Members) && a.view.Members[rank].ID == from &&
		m.check(a, g, rank) == nil
}

// admit answers the hello g on the new stream s. It returns the link over the best stream that both sides
// want, which may replace s.
func (m *Mesh) admit(a *attempt, g wire.Greeting, number int, s Stream) (link, error) {
	ctx, cancel := context.WithTimeout(a.demand.life, helloTime)
	defer cancel()
	err := setDeadline(s, time.Now().Add(helloTime))
	if err == nil {
		err = sendHello(s, m.greeting(a))
	}
	var l link
	if err == nil {
		l, err = upgrade(ctx, s, g, number, false)
	}
	if err == nil {
		err = setDeadline(l.raw, time.Time{})
	}
	if err != nil && l.lane != nil {
		_ = l.raw.Reset()
	}
	return l, err
}
