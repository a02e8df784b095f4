package mesh

import (
	"context"
	"slices"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/wire"
)

const (
	// helloTime is how long a member may take to say hello on a stream it opened, and to
	// agree on a better way: where many peers of one host connect at once that is long. Who
	// gives up too early breaks a session which the other side takes for begun.
	helloTime = time.Minute
	// parkTime is how long a stream waits for this host to enter its view.
	parkTime = time.Minute
	// maxParked is how many streams of one peer may wait: those of two views, with a knock each.
	maxParked = 2 * (streamsPerPair + 1)
)

// parkedStream waits for a Connect of its view.
type parkedStream struct {
	peer    elastic.ID
	lineage [32]byte
	claimed chan *attempt // of one element, so that claiming never blocks
}

// acceptLine handles a stream of frames that a member opened: it joins the Connect of its
// view, now or when that begins, or is refused.
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

// receive takes the stream on which g was said into the view of a, as a lane. It returns false if it ends.
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
	stop := context.AfterFunc(a.demand.life, func() { _ = s.Reset() }) // a write may be stuck
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

// invite returns the attempt to which the hello g of a peer belongs, now or when that begins.
// Without one it refuses the stream, or ends it.
func (m *Mesh) invite(s Stream, from elastic.ID, g wire.Greeting) *attempt {
	a, parked, why, cause := m.find(from, g)
	if parked != nil {
		a = m.wait(parked)
	}
	switch {
	case why != wanted:
		refuse(s, why, cause)
	case a == nil:
		_ = s.Reset() // it may come again
	case !m.belongs(a, g, from):
		refuse(s, refused, nil)
	default:
		return a
	}
	return nil
}

// find returns the attempt that g belongs to; if there is none, g parked until there is
// one; if there cannot be one, the reason, and the cause of left.
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
	// An attempt that begins from now on finds it there.
	p := &parkedStream{peer: from, lineage: g.Lineage, claimed: make(chan *attempt, 1)}
	m.parkLocked(p)
	return nil, p, wanted, nil
}

// wait returns the attempt that claims p; it returns nil when time is up, the host
// closes, or the peer parks too many others.
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

// parkLocked adds p, in place of the peer's oldest if it has too many: of that the peer
// has despaired.
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
		oldest.claimed <- nil // never blocks: who claims has unparked, and has the lock
	}
}

// unparkLocked forgets p.
func (m *Mesh) unparkLocked(p *parkedStream) {
	m.parked = slices.DeleteFunc(m.parked, func(o *parkedStream) bool { return o == p })
}

// belongs reports whether g is the hello of the member with ID from, which the carrier
// has proved; all else is the peer's word.
func (m *Mesh) belongs(a *attempt, g wire.Greeting, from elastic.ID) bool {
	rank := int(g.Rank)
	return rank != a.self && rank < len(a.view.Members) && a.view.Members[rank].ID == from &&
		m.check(a, g, rank) == nil
}

// admit answers the hello on a new stream, and returns the link over the best one that both sides
// want in its place.
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
