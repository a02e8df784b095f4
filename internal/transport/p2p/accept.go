package p2p

import (
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/wire"
)

const (
	// helloTime is how long a member may take to say hello on a stream it opened.
	helloTime = 10 * time.Second
	// parkTime is how long a stream waits for this host to enter its view.
	parkTime = 30 * time.Second
	// maxParked is how many streams of one peer may wait: those of two views.
	maxParked = 2 * streamsPerPair
)

// parkedStream waits for a Connect of its view.
type parkedStream struct {
	peer    elastic.ID
	lineage [32]byte
	claimed chan *attempt // of one element, so that claiming never blocks
}

// acceptData handles a data stream that a member opened: it joins the Connect of its
// view, now or when that begins, or is reset.
func (h *Host) acceptData(s network.Stream) {
	if err := s.SetReadDeadline(time.Now().Add(helloTime)); err != nil {
		_ = s.Reset()
		return
	}
	g, err := readHello(s)
	if err != nil {
		_ = s.Reset()
		return
	}
	from := elastic.ID(s.Conn().RemotePeer().String())
	a, wanted := h.find(g)
	if a == nil && wanted {
		if a = h.park(from, g); a == nil {
			_ = s.Reset() // it may come again
			return
		}
	}
	if a == nil || !h.belongs(a, g, from) {
		refuse(s)
		return
	}
	h.admit(a, g, s)
}

// find returns the attempt that g belongs to; if there is none, whether there can be
// one later.
func (h *Host) find(g wire.Greeting) (a *attempt, wanted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.attempts[g.Lineage]; a != nil {
		return a, true
	}
	for _, a := range h.attempts {
		if a.view.Epoch == g.Epoch {
			return nil, false // another view of the epoch that this host is entering
		}
	}
	return nil, g.Job == h.job && g.Epoch >= h.floor && !h.closed
}

// park waits until this host enters the view of g, and returns the attempt; it returns
// nil when time is up, the host closes, or the peer parks too many others.
func (h *Host) park(from elastic.ID, g wire.Greeting) *attempt {
	p := &parkedStream{peer: from, lineage: g.Lineage, claimed: make(chan *attempt, 1)}
	if oldest := h.addParked(p); oldest != nil {
		oldest.claimed <- nil
	}
	timer := time.NewTimer(parkTime)
	defer timer.Stop()
	select {
	case a := <-p.claimed:
		return a
	case <-timer.C:
	case <-h.done:
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unparkLocked(p)
	return nil
}

// addParked adds p, in place of the peer's oldest if it has too many: of that the peer
// has despaired.
func (h *Host) addParked(p *parkedStream) (oldest *parkedStream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	count := 0
	for _, o := range h.parked {
		if o.peer != p.peer {
			continue
		}
		if count++; oldest == nil {
			oldest = o
		}
	}
	h.parked = append(h.parked, p)
	if count < maxParked {
		return nil
	}
	h.unparkLocked(oldest)
	return oldest
}

// unparkLocked forgets p.
func (h *Host) unparkLocked(p *parkedStream) {
	h.parked = slices.DeleteFunc(h.parked, func(o *parkedStream) bool { return o == p })
}

// belongs reports whether g is the hello of the member with ID from, which the
// handshake proved, to this rank; all else is the peer's word.
func (h *Host) belongs(a *attempt, g wire.Greeting, from elastic.ID) bool {
	rank := int(g.Rank)
	return rank > a.self && rank < len(a.view.Members) && a.view.Members[rank].ID == from &&
		g.Stream < streamsPerPair && h.check(a, g, rank, int(g.Stream)) == nil
}

// admit answers the hello and gives the stream to the attempt.
func (h *Host) admit(a *attempt, g wire.Greeting, s network.Stream) {
	number := int(g.Stream)
	err := s.SetDeadline(time.Now().Add(helloTime))
	if err == nil {
		err = sendHello(s, h.greeting(a, number))
	}
	if err == nil {
		err = s.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = s.Reset()
		return
	}
	a.put(int(g.Rank), number, s)
}
