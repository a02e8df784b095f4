package p2p

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/transport"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/client"
	circuit "github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/relay"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/elrun/elrun/elastic"
)

// Two members that cannot connect, as both are behind routers that block inbound connections, reach
// each other through a third member with which both have a connection, if all three allow it. The
// mechanism is libp2p's circuit relay v2, as TURN (RFC 8656) is for WebRTC. The two ends encrypt
// the bytes; the relay cannot read them.
//
// Every host reserves slots at some members of other hosts with which it has direct connections. A
// host that looks for a member dials the member's own addresses first, and then circuits through
// some members. All hosts prefer relays in the same order, so that two hosts with common members
// choose a common relay.

const (
	// relayDelay is how much later than a member's own addresses circuits are dialled. If all own
	// addresses have failed circuits are dialled at once.
	relayDelay = 500 * time.Millisecond
	// relayedTime is how long libp2p's peerstore keeps circuit addresses. They are added anew
	// before each dial.
	relayedTime = time.Minute
	// reserveTime is the timeout of a reservation.
	reserveTime = 10 * time.Second
	// dropRelayTime is the timeout of a direct dial that is to replace a relayed connection.
	dropRelayTime = 5 * time.Second
	// maxRelays is the number of members at which a host has a reservation, and also the number of
	// members through which it dials others.
	maxRelays = 8
)

// openRelay lets members relay for this host, and lets this host relay for them.
func (h *Host) openRelay(up transport.Upgrader, loopback bool) error {
	h.reserved.loopback, h.reserved.held = loopback, make(map[peer.ID]bool)
	h.reserved.wide.Store(loopback)
	if err := client.AddTransport(h.host, up); err != nil {
		return fmt.Errorf("add circuits: %w", err)
	}
	var err error
	if h.relay, err = circuit.New(h.host, circuit.WithResources(circuits())); err != nil {
		return fmt.Errorf("make relay: %w", err)
	}
	return nil
}

// circuits returns the limits of the relay. They are wide, as members have connections and memory
// for each other anyway. A reservation ends with its connection.
func circuits() circuit.Resources {
	const many, forever = 1024, 10 * 365 * 24 * time.Hour
	return circuit.Resources{ReservationTTL: forever, MaxReservations: many, MaxReservationsPerIP: many,
		MaxReservationsPerASN: many, MaxCircuits: many, BufferSize: 128 << 10}
}

// reservations has the members at which this host has reserved a slot, so that it can be reached
// through them.
type reservations struct {
	loopback bool        // tests: peers on loopback count as other hosts
	wide     atomic.Bool // this host listens on an interface other than loopback

	mu   sync.Mutex
	held map[peer.ID]bool // by member, also while it is asked; true if it is on a local network
}

// relayOrder compares two relays, a and b, by preference: members with public addresses come before
// members on a local network, and then the ID decides, so that all hosts choose the same relays.
func relayOrder(a, b peer.ID, localA, localB bool) int {
	switch {
	case localA == localB:
		return cmp.Compare(a, b)
	case localB:
		return -1
	}
	return 1
}

// isLocal reports whether the other end of a connection has no public address.
func isLocal(c network.Conn) bool { return !manet.IsPublicAddr(c.RemoteMultiaddr()) }

// enough reports whether maxRelays of the held reservations are preferred to one at the other end
// of c.
func (p *reservations) enough(c network.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	better := 0
	for id, local := range p.held {
		if relayOrder(id, c.RemotePeer(), local, isLocal(c)) <= 0 {
			better++
		}
	}
	return better >= maxRelays
}

// isRemote reports whether a connection is a direct one with another host, and not made by hole
// punching.
func (h *Host) isRemote(c network.Conn) bool {
	a := c.RemoteMultiaddr()
	return ipOf(a) != nil && (h.reserved.loopback || !manet.IsIPLoopback(a)) && !h.punch.isPunched(c)
}

// take records that a member is asked for a reservation; false if it was asked before.
func (p *reservations) take(c network.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, asked := p.held[c.RemotePeer()]; asked {
		return false
	}
	p.held[c.RemotePeer()] = isLocal(c)
	return true
}

// leave removes the record of a member, and reports whether there was one.
func (p *reservations) leave(id peer.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, had := p.held[id]
	delete(p.held, id)
	return had
}

// relayCandidates returns direct connections with members on other hosts, one for each host, in the order
// of relayOrder. There are at most as many as the parameter most says, and none with the member
// except.
func (h *Host) relayCandidates(except peer.ID, most int) []network.Conn {
	var all []network.Conn
	for _, c := range h.swarm.Conns() {
		if id := c.RemotePeer(); id != except && h.isRemote(c) && h.gate.isMember(id) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b network.Conn) int {
		return relayOrder(a.RemotePeer(), b.RemotePeer(), isLocal(a), isLocal(b))
	})
	hosts, have := make(map[string]bool), make(map[peer.ID]bool)
	return slices.DeleteFunc(all, func(c network.Conn) bool {
		at, id := ipOf(c.RemoteMultiaddr()).String(), c.RemotePeer()
		if len(have) >= most || have[id] || hosts[at] && !h.reserved.loopback {
			return true
		}
		hosts[at], have[id] = true, true
		return false
	})
}

// reserve asks for reservations if the other end of c would be a preferred relay.
func (h *Host) reserve(c network.Conn) {
	if h.relay != nil && h.isRemote(c) && !h.reserved.enough(c) {
		h.reserveAll()
	}
}

// reserveAll asks the preferred members for reservations, in the background, unless they were asked
// before.
func (h *Host) reserveAll() {
	for _, c := range h.relayCandidates("", maxRelays) {
		id := c.RemotePeer()
		if !h.reserved.take(c) || !h.begin() {
			continue
		}
		go func() {
			defer h.working.Done()
			ctx, cancel := context.WithTimeout(network.WithNoDial(h.life, "reserve"), reserveTime)
			defer cancel()
			if _, err := client.Reserve(ctx, h.host, peer.AddrInfo{ID: id}); err != nil {
				h.reserved.leave(id) // a member that refuses, or does not know this host yet, is no relay
			}
		}()
	}
}

// releaseRelay replaces the reservation at a member whose last connection has ended.
func (h *Host) releaseRelay(id peer.ID) {
	if h.relay != nil && h.swarm.Connectedness(id) != network.Connected && h.reserved.leave(id) {
		h.reserveAll()
	}
}

// addCircuits adds circuit addresses of a peer, through the preferred members, to libp2p's peerstore.
func (h *Host) addCircuits(id peer.ID) {
	if h.relay == nil || !h.reserved.wide.Load() {
		return
	}
	var ways []multiaddr.Multiaddr
	for _, c := range h.relayCandidates(id, maxRelays) {
		ways = append(ways, circuitBy(c.RemotePeer()))
	}
	h.host.Peerstore().AddAddrs(id, ways, relayedTime)
}

// dropRelays makes direct connections, in the background, with the members of v that are reached only
// through relays. The next view uses these connections.
func (h *Host) dropRelays(v elastic.View) {
	if h.relay == nil {
		return
	}
	for _, m := range v.Members {
		id, err := idOf(string(m.ID))
		if err != nil || !h.onlyRelayed(id) || !h.begin() {
			continue
		}
		go func() {
			defer h.working.Done()
			ctx, cancel := context.WithTimeout(network.WithForceDirectDial(h.life, "drop relays"), dropRelayTime)
			defer cancel()
			if h.acceptsTCP(ctx, id) {
				h.swarm.Backoff().Clear(id)
				_, _ = h.swarm.DialPeer(ctx, id) // the relayed connection remains
			}
			h.punch.tryPunch(id)
		}()
	}
}

// acceptsTCP reports whether a TCP address of a peer accepts connections. It spares swarm.DialPeer
// long attempts: while libp2p dials a peer it may return connections of the attempt that have ended
// meanwhile.
func (h *Host) acceptsTCP(ctx context.Context, id peer.ID) bool {
	ctx, cancel := context.WithCancel(ctx)
	var tries sync.WaitGroup
	defer tries.Wait()
	defer cancel()
	all := multiaddr.FilterAddrs(h.host.Peerstore().Addrs(id), func(a multiaddr.Multiaddr) bool {
		_, err := a.ValueForProtocol(multiaddr.P_TCP)
		return err == nil && !isRelayed(a)
	})
	answered := make(chan bool, len(all))
	for _, a := range all {
		tries.Go(func() {
			c, err := new(manet.Dialer).DialContext(ctx, a)
			if err == nil {
				_ = c.Close()
			}
			answered <- err == nil
		})
	}
	for range all {
		if <-answered {
			return true
		}
	}
	return false
}

// onlyRelayed reports whether there are connections with a peer and all of them are relayed.
func (h *Host) onlyRelayed(id peer.ID) bool {
	all := h.swarm.ConnsToPeer(id)
	for _, c := range all {
		if !isRelayed(c.RemoteMultiaddr()) {
			return false
		}
	}
	return len(all) > 0
}
