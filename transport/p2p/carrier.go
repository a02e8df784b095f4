package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/mesh"
)

// carrier implements mesh.Carrier, mesh.Viewer and mesh.Throttler by a Host.
type carrier struct{ h *Host }

// protocolOf returns the protocol ID for streams of a kind.
func protocolOf(k mesh.Kind) protocol.ID {
	return [mesh.Kinds]protocol.ID{controlProtocol, dataProtocol, urgentProtocol, bulkProtocol}[k]
}

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

// stream is a libp2p stream as a mesh.Stream.
type stream struct {
	*lazyStream
	h *Host
}

// Read implements io.Reader.
func (s *stream) Read(b []byte) (int, error) {
	n, err := s.lazyStream.Read(b)
	return n, meshError(err)
}

// Write implements io.Writer.
func (s *stream) Write(b []byte) (int, error) {
	n, err := s.lazyStream.Write(b)
	return n, meshError(err)
}

// meshError wraps libp2p's network.ErrReset in mesh.ErrReset.
func meshError(err error) error {
	if err != nil && errors.Is(err, network.ErrReset) {
		return fmt.Errorf("%w: %w", mesh.ErrReset, err)
	}
	return err
}

// Peer implements mesh.Stream.
func (s *stream) Peer() elastic.ID { return elastic.ID(s.Conn().RemotePeer().String()) }

// Path implements mesh.Stream.
func (s *stream) Path() event.Path {
	addr := s.Conn().RemoteMultiaddr()
	kind := "p2p"
	if isRelayed(addr) {
		kind = "relay"
	}
	return event.Path{Kind: kind, Addr: addr.String(), Encrypted: true}
}

// fallback is a libp2p stream that serves as the fallback, since no direct connection was made.
type fallback struct {
	*stream
	why   string                // why there is no direct connection; "" if none was wanted
	cause atomic.Pointer[error] // why this side gave the stream up; nil if it did not
}

// Path implements mesh.Stream.
func (s *fallback) Path() event.Path {
	p := s.stream.Path()
	p.Why = s.why
	return p
}

// Read implements io.Reader.
func (s *fallback) Read(b []byte) (int, error) {
	n, err := s.stream.Read(b)
	return n, s.explain(err)
}

// Write implements io.Writer.
func (s *fallback) Write(b []byte) (int, error) {
	n, err := s.stream.Write(b)
	return n, s.explain(err)
}

// explain replaces err, the effect of abandon on a call, by the reason given to abandon.
func (s *fallback) explain(err error) error {
	if err != nil {
		if given := s.cause.Load(); given != nil {
			return *given
		}
	}
	return err
}

// abandon resets the stream. From then on reads and writes on this side return why.
func (s *fallback) abandon(why error) {
	if s.cause.CompareAndSwap(nil, &why) {
		_ = s.Reset()
	}
}

// Reset implements mesh.Stream.
func (s *fallback) Reset() error {
	s.h.watch.dropFallback(s)
	return s.stream.Reset()
}

// Close implements mesh.Stream.
func (s *fallback) Close() error {
	s.h.watch.dropFallback(s)
	return s.stream.Close()
}

// conn is the set of methods of direct.Conn that a socket needs.
type conn interface {
	io.ReadWriteCloser
	mesh.TwoWriter
	CloseWrite() error
	Reset() error
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
}

// socket is a direct connection as a mesh.Stream.
type socket struct {
	conn
	peer elastic.ID
	path event.Path
}

// Peer implements mesh.Stream.
func (s socket) Peer() elastic.ID { return s.peer }

// Path implements mesh.Stream.
func (s socket) Path() event.Path { return s.path }

// unixSocket is a socket that also passes open files.
type unixSocket struct {
	socket
	mesh.FilePasser
}

// socketOf returns the mesh.Stream over a direct connection with a peer. The parameter why is the
// reason why no better path was taken; "" if this is the best one.
func socketOf(c *direct.Conn, peer elastic.ID, why string) mesh.Stream {
	s := socket{c, peer, event.Path{Kind: c.Kind(), Addr: c.Addr(), Encrypted: c.Encrypted(), Why: why}}
	if c.Kind() == "unix" {
		return unixSocket{s, c}
	}
	return s
}
