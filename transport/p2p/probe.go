package p2p

import (
	"errors"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
)

var (
	errMissing   = errors.New("has not come yet")
	errForgotten = errors.New("was put out of the group")
)

// A member of a higher rank opens the streams of a pair. If it is dead it never will, and
// nothing else would tell: so Connect asks those with whom there is no connection.

// probeMissing probes all of the view with whom there is no connection. Lower ranks are
// dialled anyway.
func (h *Host) probeMissing(a *attempt) {
	for _, m := range a.view.Members[a.self+1:] {
		id, err := idOf(string(m.ID))
		if err != nil || h.swarm.Connectedness(id) == network.Connected {
			continue // an error shows in Introduce; a connection that ends calls down
		}
		h.probe(a, m.ID, h.gate.settling(id))
	}
}

// down probes a peer whose control streams have ended for the attempts that wait for
// it.
func (h *Host) down(id elastic.ID) {
	h.mu.Lock()
	var hit []*attempt
	for _, a := range h.attempts {
		if a.view.Rank(id) >= 0 {
			hit = append(hit, a)
		}
	}
	h.mu.Unlock()
	for _, a := range hit {
		h.probe(a, id, 0)
	}
}

// probe connects to a member, in a goroutine of the host, and fails the attempt if the
// member is dead. It first waits for the given time, in which the member may come.
func (h *Host) probe(a *attempt, id elastic.ID, wait time.Duration) {
	peerID, err := idOf(string(id))
	if err != nil || !h.begin() {
		return
	}
	go func() {
		defer h.working.Done()
		err := h.pause(a.ctx, wait, errMissing)
		if err == nil {
			_, err = h.control(a.ctx, peerID)
		}
		if err != nil && a.ctx.Err() == nil {
			a.fail(a.lost(a.view.Rank(id), err))
		}
	}()
}

// meetAll notes that all members of v have been there.
func (h *Host) meetAll(v elastic.View) {
	for _, m := range v.Members {
		if id, err := idOf(string(m.ID)); err == nil {
			h.gate.meet(id, nil)
		}
	}
}

// checkForgotten returns the loss of the first member of v that was forgotten.
func (h *Host) checkForgotten(v elastic.View) error {
	for rank, m := range v.Members {
		if id, err := idOf(string(m.ID)); err == nil && h.gate.isBanned(id) {
			return &transport.PeerError{Rank: rank, Peer: m.ID.Short(), Cause: errForgotten.Error()}
		}
	}
	return nil
}
