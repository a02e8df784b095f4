package p2p

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/transport"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/client"
	"github.com/multiformats/go-multiaddr"
)

// handshakes has the outbound handshakes in progress at the own addresses of peers. The TCP
// connection of such a handshake is established, so the peer is reachable, though it may be slow. A
// circuit would cost a slow peer further handshakes. All methods are safe for concurrent use.
type handshakes struct {
	mu      sync.Mutex
	running map[peer.ID]int // number of handshakes; no zeros
	failed  map[peer.ID]int // number of handshakes that have failed since the last success
	changed chan struct{}   // closed at the end of a handshake, and then replaced
}

// maxHandshakesFailed is the number of failed handshakes with a peer after which circuits do not
// wait any more. On some paths small packets pass and large packets are lost, so that handshakes
// fail.
const maxHandshakesFailed = 2

// circuitPatience is how long a circuit waits for a handshake with the peer itself.
const circuitPatience = 10 * time.Second

// newHandshakes returns handshakes without any in progress.
func newHandshakes() *handshakes {
	return &handshakes{running: make(map[peer.ID]int), failed: make(map[peer.ID]int), changed: make(chan struct{})}
}

// begin records the start of a handshake. The caller passes the result of the handshake to end. A
// cancelled handshake does not count as failed.
func (h *handshakes) begin(id peer.ID) (end func(error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running[id]++
	return func(err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.running[id]--; h.running[id] == 0 {
			delete(h.running, id)
		}
		switch {
		case err == nil:
			delete(h.failed, id)
		case !errors.Is(err, context.Canceled):
			h.failed[id]++
		}
		close(h.changed)
		h.changed = make(chan struct{})
	}
}

// awaitFewFailed is like await, but does not wait for a peer with which maxHandshakesFailed
// handshakes have failed.
func (h *handshakes) awaitFewFailed(ctx context.Context, id peer.ID) error {
	return h.awaitUntil(ctx, func() bool { return h.running[id] == 0 || h.failed[id] >= maxHandshakesFailed })
}

// await waits until no handshake with a peer is in progress. It returns the cause of ctx if ctx
// ends first.
func (h *handshakes) await(ctx context.Context, id peer.ID) error {
	return h.awaitUntil(ctx, func() bool { return h.running[id] == 0 })
}

// awaitUntil waits until holds returns true. It calls holds with h.mu held, first at once and then
// after the end of each handshake.
func (h *handshakes) awaitUntil(ctx context.Context, holds func() bool) error {
	for {
		h.mu.Lock()
		done, changed := holds(), h.changed
		h.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// circuitTransport is libp2p's transport for circuits. A dial waits while a handshake with the peer
// itself is in progress, up to circuitPatience. It uses only relays that are connected with this
// host: any other relay would cost a handshake with the relay, too.
type circuitTransport struct {
	*client.Client
	conns *conns
}

// errNoRelay means that this host is not connected with the relay of a circuit address. The
// connection may have ended after the address was recorded.
var errNoRelay = errors.New("no connection with the relay")

// Dial implements transport.Transport.
func (t circuitTransport) Dial(ctx context.Context, a multiaddr.Multiaddr, id peer.ID) (transport.CapableConn, error) {
	within, cancel := context.WithTimeout(ctx, circuitPatience)
	defer cancel()
	if err := t.conns.handshakes.awaitFewFailed(within, id); err != nil && ctx.Err() != nil {
		return nil, err
	}
	relay, _ := multiaddr.SplitFunc(a, func(c multiaddr.Component) bool { return c.Protocol().Code == multiaddr.P_CIRCUIT })
	if _, by := peer.SplitAddr(relay); t.conns.swarm.Connectedness(by) != network.Connected {
		return nil, errNoRelay
	}
	return t.Client.Dial(ctx, a, id)
}
