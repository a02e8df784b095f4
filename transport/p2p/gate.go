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

// Introduce implements elastic.Network. It admits the given members and records their addresses, in
// addition to those that are known. It has no effect for peers that Forget has banned. A peer that
// was not introduced is refused right after the security handshake, or, if the host has a Door,
// unless it proves a right to join. A member that connects before it was introduced here retries.
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

// contact returns the libp2p forms of a member's ID and of its addresses, as they are dialled
// (onLinks).
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

// Forget closes all connections with a peer and bans it, whatever is later learned of it. It is for
// members that were put out; one that still runs comes back under a new ID. Forget does not wait
// for the connections to end.
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

// gate is libp2p's connection gater: it decides which peers may connect, in either direction. It
// also records where each member was found last. A peer is in known or in banned, never in both.
// All methods are safe for concurrent use.
type gate struct {
	self peer.ID

	mu      sync.RWMutex
	open    bool                     // strangers may connect
	known   map[peer.ID]*memberState // the members
	banned  map[peer.ID]struct{}     // refused for good
	allowed map[peer.ID]int          // number of calls of Prove in progress, for which dials are allowed
}

// memberState is what the gate knows of a member.
type memberState struct {
	since   time.Time // time of its introduction
	reached bool      // it has had a connection, or was in a view that all members entered
	at      net.IP    // where it was found last; nil if nowhere, or if it did not answer there
}

// newGate returns a gate that admits nobody yet.
func newGate(self peer.ID) *gate {
	return &gate{self: self, known: make(map[peer.ID]*memberState),
		banned: make(map[peer.ID]struct{}), allowed: make(map[peer.ID]int)}
}

// admitStrangers lets strangers connect from now on.
func (g *gate) admitStrangers() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = true
}

// add admits id from now on. It returns false for a banned peer.
func (g *gate) add(id peer.ID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, bad := g.banned[id]; bad {
		return false
	}
	if g.known[id] == nil {
		g.known[id] = &memberState{since: time.Now()}
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

// isMember reports whether id is admitted.
func (g *gate) isMember(id peer.ID) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.known[id] != nil
}

// all returns the admitted peers, in no order.
func (g *gate) all() []peer.ID {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return slices.Collect(maps.Keys(g.known))
}

// allowDial allows dials to id until done is called.
func (g *gate) allowDial(id peer.ID) (done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.allowed[id]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.allowed[id]--; g.allowed[id] == 0 {
			delete(g.allowed, id)
		}
	}
}

// markReached records that id answers: it has a connection at addr, or, with a nil addr, it is in a view
// or was heard by another way. A relayed addr leaves the recorded address as it is.
func (g *gate) markReached(id peer.ID, addr multiaddr.Multiaddr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.known[id]
	if f == nil {
		return
	}
	f.reached = true
	if addr == nil {
		return
	}
	if ip := ipOf(addr); ip != nil {
		f.at = ip
	}
}

// forgetAddr removes the recorded address of id, after a dial to it failed, so that the next dials try
// all addresses. It reports whether there was one.
func (g *gate) forgetAddr(id peer.ID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.known[id]
	if f == nil || f.at == nil {
		return false
	}
	f.at = nil
	return true
}

// wasReached reports whether id has been reached before (markReached).
func (g *gate) wasReached(id peer.ID) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	f := g.known[id]
	return f != nil && f.reached
}

// graceTime is the grace period after the introduction of a member, in which it may refuse
// connections: all peers of a job start at about the same time, so a member may not listen yet, or
// not know the others.
const graceTime = time.Second

// graceLeft returns the rest of the grace period of id; 0 if id has been reached before, or is
// unknown.
func (g *gate) graceLeft(id peer.ID) time.Duration {
	g.mu.RLock()
	defer g.mu.RUnlock()
	f := g.known[id]
	if f == nil || f.reached {
		return 0
	}
	return max(0, graceTime-time.Since(f.since))
}

// InterceptPeerDial implements connmgr.ConnectionGater. It allows dials to members, and to the
// peers of calls of Prove in progress.
func (g *gate) InterceptPeerDial(id peer.ID) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.known[id] != nil || g.allowed[id] > 0
}

// InterceptAddrDial implements connmgr.ConnectionGater. If the gate has a recorded address of the
// member it allows only that one: a dial to it is the fastest and surest test of whether the member
// is still there.
func (g *gate) InterceptAddrDial(id peer.ID, addr multiaddr.Multiaddr) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	f := g.known[id]
	if f == nil || f.at == nil {
		return true
	}
	return f.at.Equal(ipOf(addr))
}

// InterceptAccept implements connmgr.ConnectionGater. It allows all addresses, as the peer is not
// known before the handshake.
func (g *gate) InterceptAccept(network.ConnMultiaddrs) bool { return true }

// InterceptSecured implements connmgr.ConnectionGater. It allows members, peers of calls of Prove
// in progress, and inbound strangers if the gate is open. It refuses banned peers.
func (g *gate) InterceptSecured(d network.Direction, id peer.ID, _ network.ConnMultiaddrs) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if _, bad := g.banned[id]; bad {
		return false
	}
	return g.known[id] != nil || g.allowed[id] > 0 || g.open && d == network.DirInbound
}

// InterceptUpgraded implements connmgr.ConnectionGater. InterceptSecured has decided already.
func (g *gate) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }

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

// isIPv6 reports whether an address begins with an IPv6 address.
func isIPv6(a multiaddr.Multiaddr) bool {
	_, err := a.ValueForProtocol(multiaddr.P_IP6)
	return err == nil
}
