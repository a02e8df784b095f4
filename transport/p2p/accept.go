package p2p

import (
	"context"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

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
	a, parked, code := h.find(from, g)
	if parked != nil {
		a = h.wait(parked)
	}
	switch {
	case code != 0:
		refuse(s, code)
		return
	case a == nil:
		_ = s.Reset() // it may come again
		return
	}
	if !h.belongs(a, g, from) {
		refuse(s, refusedCode)
		return
	}
	h.admit(a, g, s)
}

// find returns the attempt that g belongs to; if there is none, g parked until there is
// one; if there cannot be one, the code that says why.
func (h *Host) find(from elastic.ID, g wire.Greeting) (*attempt, *parkedStream, network.StreamErrorCode) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.attempts[g.Lineage]; a != nil {
		return a, nil, 0
	}
	for _, a := range h.attempts {
		if a.view.Epoch == g.Epoch {
			return nil, nil, refusedCode // another view of the epoch that this host is entering
		}
	}
	switch {
	case g.Job != h.job:
		return nil, nil, refusedCode
	case g.Epoch < h.floor || h.closed:
		return nil, nil, staleCode
	}
	// An attempt that begins from now on finds it there.
	p := &parkedStream{peer: from, lineage: g.Lineage, claimed: make(chan *attempt, 1)}
	h.parkLocked(p)
	return nil, p, 0
}

// wait returns the attempt that claims p; it returns nil when time is up, the host
// closes, or the peer parks too many others.
func (h *Host) wait(p *parkedStream) *attempt {
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

// parkLocked adds p, in place of the peer's oldest if it has too many: of that the peer
// has despaired.
func (h *Host) parkLocked(p *parkedStream) {
	var oldest *parkedStream
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
	if count >= maxParked {
		h.unparkLocked(oldest)
		oldest.claimed <- nil // never blocks: who claims has unparked, and has the lock
	}
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
	var l link
	switch {
	case err != nil:
	case number == dataStream:
		ctx, cancel := context.WithTimeout(a.ctx, helloTime)
		l, err = h.answerOffer(ctx, s, h.greeting(a, number))
		cancel()
	default:
		l, err = streamLink(s), sendHello(s, h.greeting(a, number))
	}
	if err == nil && l.conn == nil {
		err = s.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = s.Reset()
		return
	}
	a.put(int(g.Rank), number, l)
}
