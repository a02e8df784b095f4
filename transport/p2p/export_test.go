package p2p

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/protocol"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/mesh"
)

// SetHandshakeTime sets the timeout of the security handshake of inbound connections.
func SetHandshakeTime(cfg *Config, d time.Duration) { cfg.handshake = d }

// SetPlan makes p the plan of the pairs that have lanes from the beginning of a view.
func SetPlan(cfg *Config, p mesh.Plan) { cfg.plan = p }

// OnLoopback makes loopback count as a network for relays, and if punch is set also for hole
// punching.
func OnLoopback(cfg *Config, punch bool) { cfg.loopback, cfg.punch = true, punch }

// Break resets the libp2p streams of views with a peer.
func Break(h *Host, peer elastic.ID) error {
	id, err := idOf(string(peer))
	if err != nil {
		return err
	}
	for _, c := range h.conns.swarm.ConnsToPeer(id) {
		for _, s := range c.GetStreams() {
			if slices.Contains([]protocol.ID{dataProtocol, urgentProtocol}, s.Protocol()) {
				_ = s.Reset()
			}
		}
	}
	return nil
}

// Mute returns the address of a listener that accepts connections and sends nothing.
func Mute(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	addr, err := manet.FromNetAddr(l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return addr.String()
}
