package p2p

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/multiformats/go-multistream"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
)

// final marks an error after which trying again is of no use.
type final struct{ error }

// Unwrap returns the error itself.
func (f final) Unwrap() error { return f.error }

// The pauses between attempts to reach a peer.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// retry calls f until it succeeds, the peer refuses for good or is gone, the host
// closes, or ctx ends. A peer that was told of this host a little later than this host
// of it closes the connection first, and answers the next.
func (h *Host) retry(ctx context.Context, id peer.ID, f func(context.Context) error) error {
	pause := firstPause
	for n := 0; ; n++ {
		h.swarm.Backoff().Clear(id) // retry has its own pauses
		err := f(h.patience(ctx, n))
		if err == nil || errors.As(err, new(final)) {
			return err
		}
		if refused(err) && h.gate.settling(id) == 0 {
			return fmt.Errorf("%w: %w", elastic.ErrGone, err)
		}
		wait := pause
		if h.gate.moved(id) && !refused(err) {
			wait = 0 // what failed was to try one address of several
		}
		if err := h.pause(ctx, wait, err); err != nil {
			return err
		}
		pause = min(2*pause, lastPause)
	}
}

// pause waits between two attempts, of which the first failed with last.
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

// refused reports whether err says that nobody listens for the peer at any of the
// addresses that were dialled.
func refused(err error) bool {
	var dial *swarm.DialError
	if !errors.As(err, &dial) {
		return false
	}
	n := 0
	for _, e := range dial.DialErrors {
		switch {
		case errors.Is(e.Cause, swarm.ErrGaterDisallowedConnection):
			// Not dialled: the gate knows where the peer was.
		case errors.Is(e.Cause, syscall.ECONNREFUSED), errors.Is(e.Cause, swarm.ErrDialToSelf),
			errors.As(e.Cause, new(sec.ErrPeerIDMismatch)):
			n++ // the port is free, or somebody else's
		default:
			return false
		}
	}
	return n > 0 && dial.Skipped == 0
}

// lazyStream is a stream whose protocol is proposed along with the first bytes that are
// written, which saves a round trip; the answer is read before the first bytes. All
// hosts of a job know the protocols, so the answer is always the proposal itself. It is
// for one goroutine, but for what Stream allows.
type lazyStream struct {
	network.Stream
	proposal        []byte
	after           []byte // goes behind the first bytes that are written
	written, agreed bool
}

// Write proposes the protocol first.
func (s *lazyStream) Write(b []byte) (int, error) {
	if s.written {
		return s.Stream.Write(b)
	}
	s.written = true
	n, err := s.Stream.Write(slices.Concat(s.proposal, b, s.after))
	return min(max(0, n-len(s.proposal)), len(b)), err
}

// Read waits for the other side to take the protocol.
func (s *lazyStream) Read(b []byte) (int, error) {
	if err := s.negotiate(); err != nil {
		return 0, err
	}
	return s.Stream.Read(b)
}

// negotiate waits for the other side to take the protocol, and proposes it if that was
// not done.
func (s *lazyStream) negotiate() error {
	if s.agreed {
		return nil
	}
	if !s.written {
		if _, err := s.Write(nil); err != nil {
			return err
		}
	}
	got := make([]byte, len(s.proposal))
	if _, err := io.ReadFull(s.Stream, got); err != nil {
		return err
	}
	if !bytes.Equal(got, s.proposal) {
		return fmt.Errorf("protocol %s: the other side answered %q", s.Protocol(), got)
	}
	s.agreed = true
	return nil
}

// proposalOf returns what proposes p: multistream's own name and that of p, each as a
// line with its length before it.
func proposalOf(p protocol.ID) []byte {
	var b []byte
	for _, line := range []string{multistream.ProtocolID + "\n", string(p) + "\n"} {
		b = append(binary.AppendUvarint(b, uint64(len(line))), line...)
	}
	return b
}

// open opens a stream, and a connection where there is none. Whether the peer takes it
// shows when it is read. When bytes have been written and read, Stream can be used by
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

// settle makes a connection for what takes long, and gives a direct one the time that it needs.
func (h *Host) settle(ctx context.Context, id peer.ID) error {
	if h.punch == nil {
		return nil
	}
	err := h.reach(ctx, id)
	if err == nil {
		h.punch.want(id)
		h.punch.settled(ctx, id)
	}
	return err
}

// hangUp closes a connection in the background, as that may have to wait for bytes that
// nobody takes. When it returns the connection is out of use.
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
	// The connection is taken out of use first, at once; only then something can wait.
	timer := time.NewTimer(hangUpTime)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

// hangUpTime is more than enough for the part of closing that does not wait.
const hangUpTime = 50 * time.Millisecond

// connected notes a new connection: a member's is where it can be found, a stranger's is
// put into the lobby. Attempts to connect with the peer have an end. It is called before the
// peer can open streams.
func (h *Host) connected(_ network.Network, c network.Conn) {
	id := c.RemotePeer()
	h.reached(id)
	h.punch.reachedAs(c)
	switch {
	case h.gate.has(id) && h.punch.isPunched(c):
		h.gate.meet(id, nil) // others than its router do not answer there
	case h.gate.has(id):
		h.gate.meet(id, c.RemoteMultiaddr())
	case c.Stat().Direction == network.DirInbound:
		h.lobby.enter(c)
	}
}

// disconnected notes the end of a connection.
func (h *Host) disconnected(_ network.Network, c network.Conn) {
	h.punch.disconnected(c)
	h.leavePlace(c.RemotePeer())
}

// expel closes the connection of a stranger whose time is over.
func (h *Host) expel(c network.Conn) {
	if !h.gate.has(c.RemotePeer()) {
		h.hangUp(c)
	}
}
