package p2p

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
)

// final marks an error after which retry stops.
type final struct{ error }

// Unwrap returns the marked error.
func (f final) Unwrap() error { return f.error }

// Bounds of the pause between attempts to reach a peer. It doubles after each attempt.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// retry calls f until it succeeds, f's error is final, the peer is gone, the host closes, or ctx
// ends. The first call may fail as this host has not been introduced to the peer yet: then the peer
// closes the connection, and accepts a later one.
func (h *Host) retry(ctx context.Context, id peer.ID, f func(context.Context) error) error {
	pause := firstPause
	for n := 0; ; n++ {
		h.swarm.Backoff().Clear(id) // retry has its own pauses
		err := f(h.attemptLimit(ctx, n))
		if err == nil || errors.As(err, new(final)) {
			return err
		}
		if refused(err) && h.gate.graceLeft(id) == 0 {
			return fmt.Errorf("%w: %w", elastic.ErrGone, err)
		}
		wait := pause
		if h.gate.forgetAddr(id) && !refused(err) {
			wait = 0 // one address was tried, the one that worked last; now all are tried
		}
		if err := h.pause(ctx, wait, err); err != nil {
			return err
		}
		pause = min(2*pause, lastPause)
	}
}

// pause waits for d between two attempts. It fails if the host closes or ctx ends; last, the error
// of the attempt before, is then added.
func (h *Host) pause(ctx context.Context, d time.Duration, last error) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-h.done:
		return fmt.Errorf("%w: host closed", transport.ErrClosed)
	case <-ctx.Done():
		return fmt.Errorf("%w (%w)", context.Cause(ctx), last)
	case <-timer.C:
		return nil
	}
}

// refused reports whether every dialled address of the peer has refused: its port is closed, or
// belongs to another process.
func refused(err error) bool {
	var dial *swarm.DialError
	if !errors.As(err, &dial) {
		return false
	}
	n := 0
	for _, e := range dial.DialErrors {
		switch {
		case errors.Is(e.Cause, swarm.ErrGaterDisallowedConnection):
			// Not dialled: the gate allows only the address where the peer was found last.
		case errors.Is(e.Cause, syscall.ECONNREFUSED), errors.Is(e.Cause, swarm.ErrDialToSelf),
			errors.As(e.Cause, new(sec.ErrPeerIDMismatch)):
			n++ // the port is closed, or another process has it
		default:
			return false
		}
	}
	return n > 0 && dial.Skipped == 0
}

// open opens a stream, and connects first if there is no connection. The first read shows whether
// the peer accepts the stream. After bytes were written and read the embedded Stream can be used by
// itself.
func (h *Host) open(ctx context.Context, id peer.ID, p protocol.ID) (*lazyStream, error) {
	if p == dataProtocol || p == urgentProtocol || p == bulkProtocol {
		if err := h.settle(ctx, id); err != nil {
			return nil, err
		}
	}
	s, err := h.newStream(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := s.SetProtocol(p); err != nil {
		_ = s.Reset()
		return nil, err
	}
	return &lazyStream{Stream: s, proposal: proposalOf(p)}, nil
}

// settle connects with a peer before a long-lived stream is opened, and waits for the first attempt
// to replace a relayed connection by hole punching.
func (h *Host) settle(ctx context.Context, id peer.ID) error {
	if h.punch == nil {
		return nil
	}
	err := h.reach(ctx, id)
	if err == nil {
		h.punch.tryPunch(id)
		h.punch.awaitAttempt(ctx, id)
	}
	return err
}

// hangUp closes a connection in the background, as closing may wait for bytes that the peer does
// not read. When hangUp returns no new stream uses the connection.
func (h *Host) hangUp(c network.Conn) {
	if !h.begin() {
		return // Close closes them all
	}
	ended := make(chan struct{})
	go func() {
		defer h.working.Done()
		defer close(ended)
		_ = c.Close()
	}()
	// Close takes the connection out of use first, without waiting; only later steps can wait.
	timer := time.NewTimer(hangUpTime)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

// hangUpTime is more than enough for the part of Close that does not wait.
const hangUpTime = 50 * time.Millisecond

// connected is called with each new connection, before the peer can open streams. It ends the
// attempt to connect with the peer. The address of a member is recorded, and an inbound stranger is
// counted as one of the strangers.
func (h *Host) connected(_ network.Network, c network.Conn) {
	id := c.RemotePeer()
	h.endReached(id)
	h.punch.onConnected(c)
	switch {
	case h.gate.isMember(id) && h.punch.isPunched(c):
		h.gate.markReached(id, nil) // no address: a dial to the punched one finds only the peer's router
	case h.gate.isMember(id):
		h.gate.markReached(id, c.RemoteMultiaddr())
	case c.Stat().Direction == network.DirInbound:
		h.strangers.add(c)
	}
}

// disconnected is called at the end of each connection.
func (h *Host) disconnected(_ network.Network, c network.Conn) {
	h.punch.onDisconnected(c)
	h.releaseRelay(c.RemotePeer())
}

// expel closes the connection of a stranger, unless its peer was admitted meanwhile.
func (h *Host) expel(c network.Conn) {
	if !h.gate.isMember(c.RemotePeer()) {
		h.hangUp(c)
	}
}
