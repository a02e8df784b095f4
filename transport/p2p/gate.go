package p2p

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/elrun/elrun/elastic"
)

// Introduce implements elastic.Network: it lets in the given members and remembers their
// addresses, in addition to those it knows. It does nothing for those that Forget was
// called with. Whoever was not introduced is refused right after the security
// handshake, or, where the host has a door, unless it shows a right to join; a member that
// comes too early tries again.
func (h *Host) Introduce(members []elastic.Member) error {
	for _, m := range members {
		if m.ID == h.id {
			continue
		}
		id, addrs, err := contact(m)
		if err != nil {
			return fmt.Errorf("p2p: introduce: %w", err)
		}
		if h.gate.add(id) {
			h.host.Peerstore().AddAddrs(id, addrs, peerstore.PermanentAddrTTL)
		}
	}
	return nil
}

// contact returns the libp2p forms of a member's ID and of its addresses, as they are dialled.
func contact(m elastic.Member) (peer.ID, []multiaddr.Multiaddr, error) {
	id, err := idOf(string(m.ID))
	if err != nil {
		return "", nil, err
	}
	var addrs []multiaddr.Multiaddr
	for _, text := range m.Addrs {
		a, err := multiaddr.NewMultiaddr(text)
		if err != nil {
			return "", nil, fmt.Errorf("%s: address %q: %w", m.ID.Short(), text, err)
		}
		if a, _ = peer.SplitAddr(a); a != nil {
			addrs = append(addrs, onLinks(a, ownZones)...)
		}
	}
	return id, addrs, nil
}

// Forget closes all connections with a peer and refuses it from now on, whatever else
// is said of it. It is for members that were put out: one that is still there comes
// back under a new ID. It does not wait for the connections to end.
func (h *Host) Forget(id elastic.ID) {
	peerID, err := idOf(string(id))
	if err != nil {
		return // no peer has such an ID
	}
	h.gate.ban(peerID)
	h.local.forget(id)
	h.host.Peerstore().ClearAddrs(peerID)
	for _, c := range h.swarm.ConnsToPeer(peerID) {
		h.hangUp(c)
	}
}

// gate is libp2p's connection gater: who may connect, in either direction.
type gate struct {
	self peer.ID

	mu     sync.RWMutex
	open   bool                 // strangers may come as far as the lobby
	known  map[peer.ID]*friend  // the members
	banned map[peer.ID]struct{} // never again
	asked  map[peer.ID]int      // Proves in progress, which may dial
}

// friend is what the gate knows of a member.
type friend struct {
	since time.Time // of its introduction
	met   bool      // it has been connected with, or in a view that all entered
	at    net.IP    // where it was found last, nil if nowhere or not there any more
}

// newGate returns a gate that lets in nobody yet.
func newGate(self peer.ID) *gate {
	return &gate{self: self, known: make(map[peer.ID]*friend),
		banned: make(map[peer.ID]struct{}), asked: make(map[peer.ID]int)}
}

// unlock lets strangers come as far as the lobby.
func (g *gate) unlock() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = true
}

// add lets id in from now on, and reports whether it is in.
func (g *gate) add(id peer.ID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, bad := g.banned[id]; bad {
		return false
	}
	if g.known[id] == nil {
		g.known[id] = &friend{since: time.Now()}
	}
	return true
}

// ban refuses id for good.
func (g *gate) ban(id peer.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.known, id)
	g.banned[id] = struct{}{}
}

// isBanned reports whether ban was called with id.
func (g *gate) isBanned(id peer.ID) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	_, bad := g.banned[id]
	return bad
}

// has reports whether id is let in.
func (g *gate) has(id peer.ID) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.known[id] != nil
}

// all returns those that are let in.
func (g *gate) all() []peer.ID {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return slices.Collect(maps.Keys(g.known))
}

// ask allows dials to id until the function that it returns is called.
func (g *gate) ask(id peer.ID) (done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked[id]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.asked[id]--; g.asked[id] == 0 {
			delete(g.asked, id)
		}
	}
}

// meet notes that id has a connection with the given address, or takes part in a
// view, if addr is nil.
func (g *gate) meet(id peer.ID, addr multiaddr.Multiaddr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.known[id]
	if f == nil {
		return
	}
	f.met = true
	if addr == nil {
		return
	}
	if ip := placeOf(addr); ip != nil {
		f.at = ip
	}
}

// moved notes that id was not to be reached where it was found last, so that the next
// dials try all its addresses. It reports whether there was such a place.
func (g *gate) moved(id peer.ID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.known[id]
	if f == nil || f.at == nil {
		return false
	}
	f.at = nil
	return true
}

// hasMet reports whether id has been connected with.
func (g *gate) hasMet(id peer.ID) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	f := g.known[id]
	return f != nil && f.met
}

// settlingTime is how long a member may be unknown to the others, or not listen yet,
// after it was introduced here: all peers of a job start at about the same time.
const settlingTime = time.Second

// settling returns how long it may still take until id can be expected to answer; 0 if
// it has answered before.
func (g *gate) settling(id peer.ID) time.Duration {
	g.mu.RLock()
	defer g.mu.RUnlock()
	f := g.known[id]
	if f == nil || f.met {
		return 0
	}
	return max(0, settlingTime-time.Since(f.since))
}

// InterceptPeerDial allows dials to members, and to those that Prove asks.
func (g *gate) InterceptPeerDial(id peer.ID) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.known[id] != nil || g.asked[id] > 0
}

// InterceptAddrDial allows only the address where a member was found last, if that is
// known: nothing else tells as soon and as surely whether it is still there.
func (g *gate) InterceptAddrDial(id peer.ID, addr multiaddr.Multiaddr) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	f := g.known[id]
	if f == nil || f.at == nil {
		return true
	}
	return f.at.Equal(placeOf(addr))
}

// InterceptAccept allows all addresses: who is there shows after the handshake.
func (g *gate) InterceptAccept(network.ConnMultiaddrs) bool { return true }

// InterceptSecured allows members, those that this host dialled, and strangers if they
// may prove themselves.
func (g *gate) InterceptSecured(d network.Direction, id peer.ID, _ network.ConnMultiaddrs) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if _, bad := g.banned[id]; bad {
		return false
	}
	return g.known[id] != nil || g.asked[id] > 0 || g.open && d == network.DirInbound
}

// InterceptUpgraded allows what InterceptSecured did.
func (g *gate) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }

// nearFirst is the order of dialling: loopback first, which on one host is the cheapest
// way, all others at once a moment later, or as soon as loopback has failed, and in the end
// the ways by others. Of two loopback addresses that of IPv4 alone comes first: whoever
// listens at both would do the work of two handshakes.
func nearFirst(addrs []multiaddr.Multiaddr) []network.AddrDelay {
	const moment, second = 50 * time.Millisecond, 250 * time.Millisecond // a loaded host takes its time to answer itself
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

// isIPv6 reports whether an address begins with an IPv6 address.
func isIPv6(a multiaddr.Multiaddr) bool {
	_, err := a.ValueForProtocol(multiaddr.P_IP6)
	return err == nil
}
