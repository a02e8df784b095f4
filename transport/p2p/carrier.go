package p2p

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/mesh"
)

// carrier implements mesh.Carrier, mesh.Viewer and mesh.Throttler by a Host.
type carrier struct{ h *Host }

// ID implements mesh.Carrier.
func (c carrier) ID() elastic.ID { return c.h.id }

// Introduce implements mesh.Carrier.
func (c carrier) Introduce(members []elastic.Member) error { return c.h.Introduce(members) }

// Open implements mesh.Carrier.
func (c carrier) Open(ctx context.Context, to elastic.ID, k mesh.Kind) (mesh.Stream, error) {
	id, err := idOf(string(to))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", mesh.ErrBadID, err)
	}
	if c.h.gate.isBanned(id) {
		return nil, mesh.ErrBanned
	}
	if s, err := c.h.local.open(ctx, to, k); !errors.Is(err, errNotLocal) {
		return s, err
	}
	for {
		s, err := c.h.openOnce(ctx, id, k)
		switch {
		case err == nil:
			return s, nil
		case refused(err) && c.h.gate.graceLeft(id) == 0:
			return nil, fmt.Errorf("%w: %w", elastic.ErrGone, err)
		case refused(err) || ctx.Err() != nil || !c.h.gate.forgetAddr(id):
			return nil, err
		}
		// One address was tried, the one that worked last. Now all are tried.
	}
}

// openOnce opens a stream of a kind by libp2p. For Control it waits until the peer has accepted the
// stream: a peer that does not know this host yet resets it, and a message sent before would be
// lost.
func (h *Host) openOnce(ctx context.Context, id peer.ID, k mesh.Kind) (mesh.Stream, error) {
	h.swarm.Backoff().Clear(id) // the caller has a backoff of its own
	raw, err := h.open(h.attemptLimit(ctx, h.failedDials(id)), id, protocolOf(k))
	if err != nil {
		return nil, err
	}
	s := &stream{lazyStream: raw, h: h}
	switch k {
	case mesh.Control:
		if err := h.negotiate(ctx, raw); err != nil {
			return nil, err
		}
		h.reserve(raw.Conn())
		h.punch.tryPunch(id)
	case mesh.Data:
		raw.after = appendOffer(nil, h.offer(direct.Ticket{}))
		return upgradable{s}, nil
	}
	return s, nil
}

// unansweredTime is the age of an unanswered stream from which a caller that gives up also closes
// the connection.
const unansweredTime = 5 * time.Second

// negotiate waits until the other side has accepted the stream's protocol. It resets the stream on
// error, and closes the connection after unansweredTime without an answer.
func (h *Host) negotiate(ctx context.Context, s *lazyStream) error {
	began := time.Now()
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	err := s.negotiate()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		return nil
	}
	_ = s.Reset()
	if ctx.Err() != nil && time.Since(began) >= unansweredTime {
		h.hangUp(s.Conn())
	}
	return err
}

// accept returns the handler for libp2p streams of a kind that others open.
func (h *Host) accept(k mesh.Kind) func(network.Stream) {
	return func(raw network.Stream) {
		s := &stream{lazyStream: &lazyStream{Stream: raw, written: true, agreed: true}, h: h}
		switch k {
		case mesh.Control:
			h.reserve(raw.Conn())
			h.punch.tryPunch(raw.Conn().RemotePeer())
		case mesh.Data:
			h.take(k, upgradable{s})
			return
		}
		h.take(k, s)
	}
}

// Handle implements mesh.Carrier.
func (c carrier) Handle(take func(k mesh.Kind, s mesh.Stream)) { c.h.take = take }

// HangUp implements mesh.Carrier.
func (c carrier) HangUp(to elastic.ID) {
	c.h.local.hangUp(to)
	id, err := idOf(string(to))
	if err != nil {
		return // no peer has such an ID
	}
	for _, conn := range c.h.swarm.ConnsToPeer(id) {
		c.h.hangUp(conn)
	}
}

// Close implements mesh.Carrier.
func (c carrier) Close() error { return c.h.close() }

// Entering implements mesh.Viewer. It fails if the view has a banned peer.
func (c carrier) Entering(v elastic.View) error {
	for rank, m := range v.Members {
		if id, err := idOf(string(m.ID)); err == nil && c.h.gate.isBanned(id) {
			return &transport.PeerError{Rank: rank, Peer: m.ID.Short(), Cause: mesh.ErrBanned.Error()}
		}
	}
	c.h.throttle.setInsiders(c.h.insiders(v))
	c.h.dropRelays(v)
	return nil
}

// Entered implements mesh.Viewer.
func (c carrier) Entered(v elastic.View) {
	c.h.throttle.setInsiders(c.h.insiders(v)) // with the relays that have been found meanwhile
	for _, m := range v.Members {
		if id, err := idOf(string(m.ID)); err == nil {
			c.h.gate.markReached(id, nil)
		}
	}
}

// Took implements mesh.Throttler: a control message from an outsider costs messageTokens.
func (c carrier) Took(from elastic.ID) {
	if id, err := idOf(string(from)); err == nil {
		c.h.throttle.spend(id, messageTokens)
	}
}
