package p2p

import (
	"fmt"
	"sync"

	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/multiformats/go-multiaddr"

	"github.com/elrun/elrun/elastic"
)

// AddPeers lets in the given members and remembers their addresses, in addition to
// those it knows. Whoever was not added is refused right after the security
// handshake; a member that comes too early tries again.
func (h *Host) AddPeers(members []elastic.Member) error {
	for _, m := range members {
		if m.ID == h.id {
			continue
		}
		id, err := idOf(string(m.ID))
		if err != nil {
			return fmt.Errorf("p2p: add peer: %w", err)
		}
		var addrs []multiaddr.Multiaddr
		for _, text := range m.Addrs {
			a, err := multiaddr.NewMultiaddr(text)
			if err != nil {
				return fmt.Errorf("p2p: add peer %s: address %q: %w", m.ID.Short(), text, err)
			}
			if a, _ = peer.SplitAddr(a); a != nil {
				addrs = append(addrs, a)
			}
		}
		h.host.Peerstore().AddAddrs(id, addrs, peerstore.PermanentAddrTTL)
		h.gate.add(id)
	}
	return nil
}

// gate is libp2p's connection gater: who may connect, in either direction.
type gate struct {
	self  peer.ID
	mu    sync.RWMutex
	known map[peer.ID]bool
}

// newGate returns a gate that lets in nobody yet.
func newGate(self peer.ID) *gate { return &gate{self: self, known: make(map[peer.ID]bool)} }

// add lets in id from now on.
func (g *gate) add(id peer.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known[id] = true
}

// has reports whether id is let in.
func (g *gate) has(id peer.ID) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.known[id]
}

// InterceptPeerDial allows dials to members only.
func (g *gate) InterceptPeerDial(id peer.ID) bool { return g.has(id) }

// InterceptAddrDial allows all addresses of a member.
func (g *gate) InterceptAddrDial(peer.ID, multiaddr.Multiaddr) bool { return true }

// InterceptAccept allows all addresses: who is there shows after the handshake.
func (g *gate) InterceptAccept(network.ConnMultiaddrs) bool { return true }

// InterceptSecured allows members only.
func (g *gate) InterceptSecured(_ network.Direction, id peer.ID, _ network.ConnMultiaddrs) bool {
	return g.has(id)
}

// InterceptUpgraded allows what InterceptSecured did.
func (g *gate) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }
