package p2p

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/mesh"
)

// carrier implements mesh.Carrier, mesh.Viewer and mesh.Throttler by a Host. It is the interface of
// this package to the session protocol: identities, streams between them, and the changes when a
// view begins. A stream to a peer is, in this order of preference:
//
//   - a Unix socket, if the peer is of this host and launcher (local);
//   - a stream of libp2p over an existing or a new connection (dialer).
//
// A data stream of libp2p is replaced by a direct connection later, when the mesh calls Upgrade.
type carrier struct{ h *Host }

// ID implements mesh.Carrier.
func (c carrier) ID() elastic.ID { return c.h.id }

// Introduce implements mesh.Carrier.
func (c carrier) Introduce(members []elastic.Member) error { return c.h.Introduce(members) }

// Open implements mesh.Carrier. It makes one attempt, or two if the first was limited to the
// address where the peer was found last.
func (c carrier) Open(ctx context.Context, to elastic.ID, k mesh.Kind) (mesh.Stream, error) {
	id, err := c.h.conns.gate.decode(to)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", mesh.ErrBadID, err)
	}
	if c.h.conns.gate.isBanned(id) {
		return nil, mesh.ErrBanned // before any dial: the mesh then gives up for good
	}
	if s, err := c.h.local.open(ctx, to, k); !errors.Is(err, errNotLocal) {
		return s, err
	}
	for {
		s, err := c.openOnce(ctx, id, k)
		switch {
		case err == nil:
			return s, nil
		case refused(err) && c.h.conns.gate.graceLeft(id) == 0:
			return nil, fmt.Errorf("%w: %w", elastic.ErrGone, err)
		case refused(err) || ctx.Err() != nil || !c.h.conns.gate.forgetAddr(id):
			return nil, err
		}
		// Only the recorded address was tried. Now all addresses are tried.
	}
}

// openOnce opens a stream of a kind by libp2p. For Control it waits until the peer has accepted the
// stream: a peer to which this host was not introduced yet resets the stream, and a message sent
// before the reset would be lost.
func (c carrier) openOnce(ctx context.Context, id peer.ID, k mesh.Kind) (mesh.Stream, error) {
	d := c.h.dialer
	d.swarm.Backoff().Clear(id) // the caller has a backoff of its own
	raw, err := d.open(d.attemptLimit(ctx, d.failedDials(id)), id, protocolOf(k))
	if err != nil {
		return nil, err
	}
	s := &stream{lazyStream: raw}
	switch k {
	case mesh.Control:
		if err := d.confirm(ctx, raw); err != nil {
			return nil, err
		}
		// The peer has admitted this host, so it grants reservations and answers the questions of
		// hole punching.
		c.h.relays.reserve(raw.Conn())
		c.h.punch.tryPunch(id)
	case mesh.Data:
		// The offer is sent together with the hello, which saves half a round trip.
		s.after = appendOffer(nil, c.h.paths.offer(direct.Ticket{}))
		return upgradable{s, c.h.paths}, nil
	}
	return s, nil
}

// accept returns the handler for libp2p streams of a kind that others open. The acceptor has
// negotiated the protocol before it calls the handler.
func (c carrier) accept(k mesh.Kind) func(network.Stream) {
	return func(raw network.Stream) {
		s := &stream{lazyStream: &lazyStream{raw, raw}}
		switch k {
		case mesh.Control:
			c.h.relays.reserve(raw.Conn())
			c.h.punch.tryPunch(raw.Conn().RemotePeer())
		case mesh.Data:
			c.h.take(k, upgradable{s, c.h.paths})
			return
		}
		c.h.take(k, s)
	}
}

// Handle implements mesh.Carrier.
func (c carrier) Handle(take func(k mesh.Kind, s mesh.Stream)) { c.h.take = take }

// HangUp implements mesh.Carrier. Direct connections stay, as each carries one stream only.
func (c carrier) HangUp(to elastic.ID) {
	c.h.local.hangUp(to)
	id, err := idOf(string(to))
	if err != nil {
		return // no peer has such an ID
	}
	c.h.conns.hangUpPeer(id)
}

// Close implements mesh.Carrier.
func (c carrier) Close() error { return c.h.close() }

// question is what the carrier of one host asks that of another one, in JSON. One field is set. The answer
// is a message of the same part.
type question struct {
	Book  *book     `json:"book,omitempty"`
	Punch *punchAsk `json:"punch,omitempty"`
}

// ask asks a member. The caller reads the answer and closes it.
func (c carrier) ask(ctx context.Context, to elastic.ID, q question) (io.ReadCloser, error) {
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	return c.h.Ask(ctx, to, text)
}

// answer implements mesh.Config.Answer.
func (c carrier) answer(ctx context.Context, from elastic.ID, text []byte, w *bufio.Writer) error {
	var q question
	if err := json.Unmarshal(text, &q); err != nil {
		return err
	}
	switch {
	case q.Book != nil:
		return c.h.addresses.answer(from, q.Book, w)
	case q.Punch != nil && c.h.punch != nil:
		return c.h.punch.answer(ctx, from, q.Punch, w)
	}
	return errors.New("a question that this host does not answer")
}

// Entering implements mesh.Viewer. It fails if the view has a banned peer.
func (c carrier) Entering(v elastic.View) error {
	for rank, m := range v.Members {
		if id, err := c.h.conns.gate.decode(m.ID); err == nil && c.h.conns.gate.isBanned(id) {
			return &transport.PeerError{Rank: rank, Peer: m.ID.Short(), Cause: mesh.ErrBanned.Error()}
		}
	}
	c.h.throttle.setInsiders(c.h.conns.insiders(v)) // before frames of the view arrive
	c.h.relays.dropRelays(v, c.h.punch.tryPunch)
	return nil
}

// Entered implements mesh.Viewer. All members have entered, so each member was reached: from now on
// a refused connection means that the process of the member is gone.
func (c carrier) Entered(v elastic.View) {
	c.h.throttle.setInsiders(c.h.conns.insiders(v)) // again, as connections through relays may be new
	for _, m := range v.Members {
		if id, err := c.h.conns.gate.decode(m.ID); err == nil {
			c.h.conns.gate.markReached(id, nil)
		}
	}
}

// Took implements mesh.Throttler: a control message from an outsider costs messageTokens. It blocks
// the reader of the control stream while the outsider is in debt.
func (c carrier) Took(from elastic.ID) {
	if id, err := c.h.conns.gate.decode(from); err == nil {
		c.h.throttle.spend(id, messageTokens)
	}
}
