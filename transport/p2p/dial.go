package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/elrun/elrun/collective/transport"
)

// dial is one attempt to connect with a peer, which all callers of reach share. It ends with the
// first connection of the peer in either direction, so that a connection from the peer does not
// have to wait for a dial whose packets are dropped on the way.
type dial struct {
	// ended is closed when there is a connection, or err is set.
	ended   chan struct{}
	err     error // valid once ended is closed
	waiting int   // number of callers of reach
	stop    context.CancelFunc
}

// firstAttemptTime is the limit of the first attempt to reach a peer where relays are tried, too. Each
// later attempt has twice the limit, up to 16 times. The limit makes attempts short: libp2p tries
// each address once in an attempt, and a relay may have had no reservation of the peer yet.
const firstAttemptTime = 2 * time.Second

// attemptLimit returns ctx with the limit of attempt number n, counted from 0, to reach a peer. Without
// relays it returns ctx.
func (h *Host) attemptLimit(ctx context.Context, n int) context.Context {
	if h.relay == nil || !h.reserved.wide.Load() {
		return ctx
	}
	return network.WithDialPeerTimeout(ctx, firstAttemptTime<<min(n, 4))
}

// reach returns nil when there is a connection with a peer. All callers for one peer share one
// attempt, which is given up when no caller waits for it any more.
func (h *Host) reach(ctx context.Context, id peer.ID) error {
	if h.swarm.Connectedness(id) == network.Connected {
		return nil
	}
	d, err := h.joinDial(ctx, id)
	if err != nil {
		return err
	}
	defer h.leaveDial(id, d)
	select {
	case <-d.ended:
		return d.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// failedDials returns the number of failed attempts to connect with a peer since the last success.
func (h *Host) failedDials(id peer.ID) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed[id]
}

// joinDial returns the attempt in progress with a peer, or begins one. The caller owes leaveDial.
func (h *Host) joinDial(ctx context.Context, id peer.ID) (*dial, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, fmt.Errorf("%w: host closed", transport.ErrClosed)
	}
	d := h.dials[id]
	if d == nil {
		d = &dial{ended: make(chan struct{})}
		// The attempt takes its dial timeout from the caller's ctx, and not its cancellation.
		within, stop := context.WithCancel(network.WithDialPeerTimeout(h.life, network.GetDialPeerTimeout(ctx)))
		d.stop = stop
		h.dials[id] = d
		h.working.Add(1)
		go func() {
			defer h.working.Done()
			err := h.dialPeer(within, id)
			h.endDial(id, d, err)
		}()
	}
	d.waiting++
	return d, nil
}

const (
	// maxFirstDials is the number of first connections that a host makes at a time. All peers of a
	// job connect at its start. If all handshakes ran at once, each would take as long as all of
	// them together, and exceed its time limit.
	maxFirstDials = 8
	// firstDialTime is how long a dial may hold its slot of firstDials. A dial that takes longer
	// waits for the network rather than for a processor.
	firstDialTime = time.Second
)

// dialPeer makes a connection. The first dial to a peer waits for a slot of firstDials. A peer that
// was reached before is dialled at once, as a failing dial is how its death is found.
func (h *Host) dialPeer(ctx context.Context, id peer.ID) error {
	if !h.gate.wasReached(id) {
		select {
		case h.firstDials <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		leave := sync.OnceFunc(func() { <-h.firstDials })
		timer := time.AfterFunc(firstDialTime, leave)
		defer leave()
		defer timer.Stop()
	}
	h.addCircuits(id)
	_, err := h.swarm.DialPeer(ctx, id)
	return err
}

// leaveDial takes a caller off an attempt, and cancels the attempt after the last one.
func (h *Host) leaveDial(id peer.ID, d *dial) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d.waiting--; d.waiting == 0 {
		h.endDialLocked(id, d, context.Canceled)
	}
}

// endDial ends an attempt with err, unless it has ended.
func (h *Host) endDial(id peer.ID, d *dial, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endDialLocked(id, d, err)
}

// endDialLocked is endDial for callers that hold h.mu. It counts failures in h.failed, but not
// cancellations.
func (h *Host) endDialLocked(id peer.ID, d *dial, err error) {
	if h.dials[id] != d {
		return
	}
	delete(h.dials, id)
	switch {
	case err == nil:
		delete(h.failed, id)
	case !errors.Is(err, context.Canceled):
		h.failed[id]++
	}
	d.err = err
	d.stop()
	close(d.ended)
}

// endReached ends the attempt with a peer that has a connection by now.
func (h *Host) endReached(id peer.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.dials[id]; d != nil {
		h.endDialLocked(id, d, nil)
	}
}

// newStream opens a stream to a peer, and connects first if there is no connection.
func (h *Host) newStream(ctx context.Context, id peer.ID) (network.Stream, error) {
	// A connection may end between reach and NewStream, so this is tried twice.
	for last := false; ; last = true {
		if err := h.reach(ctx, id); err != nil {
			return nil, err
		}
		s, err := h.swarm.NewStream(network.WithNoDial(ctx, "reached"), id)
		if last || !errors.Is(err, network.ErrNoConn) {
			return s, err
		}
	}
}

// nearFirst is libp2p's dial ranker. Loopback is dialled first, as the cheapest path within a host.
// All other addresses follow together after a moment, or as soon as loopback has failed, and relays
// last. Of two loopback addresses the IPv4 one comes first: a peer that listens at both would do
// the work of two handshakes.
func nearFirst(addrs []multiaddr.Multiaddr) []network.AddrDelay {
	const moment, second = 50 * time.Millisecond, 250 * time.Millisecond // a loaded host is slow to answer even itself
	isNear4 := func(a multiaddr.Multiaddr) bool { return manet.IsIPLoopback(a) && !isIPv6(a) }
	anyNear := slices.ContainsFunc(addrs, manet.IsIPLoopback)
	anyNear4 := slices.ContainsFunc(addrs, isNear4)
	var out []network.AddrDelay
	for _, a := range addrs {
		d := network.AddrDelay{Addr: a}
		switch {
		case isRelayed(a):
			d.Delay = relayDelay
		case anyNear4 && manet.IsIPLoopback(a) && !isNear4(a):
			d.Delay = second
		case anyNear && !manet.IsIPLoopback(a):
			d.Delay = moment
		}
		out = append(out, d)
	}
	return out
}
