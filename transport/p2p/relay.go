package p2p

import (
	"cmp"
	"context"
	"fmt"
	"net"
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

// Two members that cannot connect, as both are behind routers that let nothing in, can reach
// each other by way of a third that both have connected with, if all three allow it: libp2p's
// circuits. What passes is encrypted between the two at the ends. Every host reserves places at
// some members of other hosts with which it has direct connections; whoever looks for a member
// tries the addresses of its own first, and then ways by some members. All choose them in one
// order, so that those who have some in common meet.

// Names of Config.Relay, in the order of their codes.
func relayNames() []string { return []string{"never", "members"} }

// neverRelay is the code of "never".
const neverRelay = 0

const (
	// relayDelay is how much later than a member's own addresses the ways by others are
	// tried; at once if the former have all failed.
	relayDelay = 500 * time.Millisecond
	// relayedTime is how long libp2p remembers ways by others, which are told anew for
	// each attempt to reach a member.
	relayedTime = time.Minute
	// reserveTime is how long a member may take to give a place.
	reserveTime = 10 * time.Second
	// straightTime is how long a direct connection in place of a relayed one may take.
	straightTime = 5 * time.Second
	// maxRelays is at how many members a host has a place, and by how many it looks for others.
	maxRelays = 8
)

// openRelay lets this host be reached by way of members, and be such a way itself.
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

// circuits are limits for members, who have connections and memory for each other anyway. A
// place is given up when the connection ends.
func circuits() circuit.Resources {
	const many, forever = 1024, 10 * 365 * 24 * time.Hour
	return circuit.Resources{ReservationTTL: forever, MaxReservations: many, MaxReservationsPerIP: many,
		MaxReservationsPerASN: many, MaxCircuits: many, BufferSize: 128 << 10}
}

// circuitBy is the address of whoever has reserved a place at a member.
func circuitBy(id peer.ID) multiaddr.Multiaddr {
	return multiaddr.StringCast("/p2p/" + id.String() + "/p2p-circuit")
}

// isRelayed reports whether an address is by way of another.
func isRelayed(a multiaddr.Multiaddr) bool {
	_, err := a.ValueForProtocol(multiaddr.P_CIRCUIT)
	return err == nil
}

// relayOf returns by way of whom an address is; false if it is by way of nobody.
func relayOf(a multiaddr.Multiaddr) (peer.ID, bool) {
	if !isRelayed(a) {
		return "", false
	}
	by, err := a.ValueForProtocol(multiaddr.P_P2P)
	if err != nil {
		return "", false
	}
	id, err := peer.Decode(by)
	return id, err == nil
}

// placeOf returns the IP address at which whoever has the address is itself, nil if it has
// none or is reached by way of another, whose it would be.
func placeOf(a multiaddr.Multiaddr) net.IP {
	if isRelayed(a) {
		return nil
	}
	ip, err := manet.ToIP(withoutZone(a))
	if err != nil {
		return nil
	}
	return ip
}

// reservations are the places that other members keep for this host, so that it can be reached by
// way of them.
type reservations struct {
	loopback bool        // those on loopback count as others
	wide     atomic.Bool // this host listens where others are

	mu   sync.Mutex
	held map[peer.ID]bool // whether it is on a local network; also those that are being asked
}

// before is the order in which members are chosen: rather on the internet than on the local
// network, and then by ID, so that all choose the same ones.
func before(a, b peer.ID, localA, localB bool) int {
	switch {
	case localA == localB:
		return cmp.Compare(a, b)
	case localB:
		return -1
	}
	return 1
}

// isLocal reports whether a connection is with somebody on a local network.
func isLocal(c network.Conn) bool { return !manet.IsPublicAddr(c.RemoteMultiaddr()) }

// enough reports whether those that keep places come before the other end of a connection.
func (p *reservations) enough(c network.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	better := 0
	for id, local := range p.held {
		if before(id, c.RemotePeer(), local, isLocal(c)) <= 0 {
			better++
		}
	}
	return better >= maxRelays
}

// isFar reports whether a connection is a direct one with another host.
func (h *Host) isFar(c network.Conn) bool {
	a := c.RemoteMultiaddr()
	return placeOf(a) != nil && (h.reserved.loopback || !manet.IsIPLoopback(a)) && !h.punch.isPunched(c)
}

// take notes that a member is asked for a place, unless it was.
func (p *reservations) take(c network.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, asked := p.held[c.RemotePeer()]; asked {
		return false
	}
	p.held[c.RemotePeer()] = isLocal(c)
	return true
}

// leave notes that a member keeps no place, and reports whether it was asked for one.
func (p *reservations) leave(id peer.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, had := p.held[id]
	delete(p.held, id)
	return had
}

// outside returns direct connections with members on other hosts, one for each of these, in the
// order of before.
func (h *Host) outside(except peer.ID, most int) []network.Conn {
	var all []network.Conn
	for _, c := range h.swarm.Conns() {
		if id := c.RemotePeer(); id != except && h.isFar(c) && h.gate.has(id) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b network.Conn) int {
		return before(a.RemotePeer(), b.RemotePeer(), isLocal(a), isLocal(b))
	})
	hosts, have := make(map[string]bool), make(map[peer.ID]bool)
	return slices.DeleteFunc(all, func(c network.Conn) bool {
		at, id := placeOf(c.RemoteMultiaddr()).String(), c.RemotePeer()
		if len(have) >= most || have[id] || hosts[at] && !h.reserved.loopback {
			return true
		}
		hosts[at], have[id] = true, true
		return false
	})
}

// reserve asks for places when there may be a better one: at the other end of a connection.
func (h *Host) reserve(c network.Conn) {
	if h.relay != nil && h.isFar(c) && !h.reserved.enough(c) {
		h.reserveAll()
	}
}

// reserveAll asks some members for a place, if they have not been asked.
func (h *Host) reserveAll() {
	for _, c := range h.outside("", maxRelays) {
		id := c.RemotePeer()
		if !h.reserved.take(c) || !h.begin() {
			continue
		}
		go func() {
			defer h.working.Done()
			ctx, cancel := context.WithTimeout(network.WithNoDial(h.life, "reserve"), reserveTime)
			defer cancel()
			if _, err := client.Reserve(ctx, h.host, peer.AddrInfo{ID: id}); err != nil {
				h.reserved.leave(id) // who does not allow it, or does not know this host yet, is no way
			}
		}()
	}
}

// leavePlace looks for another place when the connection with a member that kept one has ended.
func (h *Host) leavePlace(id peer.ID) {
	if h.relay != nil && h.swarm.Connectedness(id) != network.Connected && h.reserved.leave(id) {
		h.reserveAll()
	}
}

// tellWays tells libp2p by whom a peer may be reached with which there is no connection.
func (h *Host) tellWays(id peer.ID) {
	if h.relay == nil || !h.reserved.wide.Load() {
		return
	}
	var ways []multiaddr.Multiaddr
	for _, c := range h.outside(id, maxRelays) {
		ways = append(ways, circuitBy(c.RemotePeer()))
	}
	h.host.Peerstore().AddAddrs(id, ways, relayedTime)
}

// straighten tries, in the background, to connect directly with the members of v that are
// reached by way of others. The next view makes use of it.
func (h *Host) straighten(v elastic.View) {
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
			ctx, cancel := context.WithTimeout(network.WithForceDirectDial(h.life, "straighten"), straightTime)
			defer cancel()
			if h.answers(ctx, id) {
				h.swarm.Backoff().Clear(id)
				_, _ = h.swarm.DialPeer(ctx, id) // the relayed connection remains
			}
			h.punch.want(id)
		}()
	}
}

// answers reports whether anybody answers at an address of a peer. While libp2p dials it
// takes connections of that attempt for good that have ended, so it must not try for long.
func (h *Host) answers(ctx context.Context, id peer.ID) bool {
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

// onlyRelayed reports whether all connections with a peer are by way of others, and there
// are some.
func (h *Host) onlyRelayed(id peer.ID) bool {
	all := h.swarm.ConnsToPeer(id)
	for _, c := range all {
		if !isRelayed(c.RemoteMultiaddr()) {
			return false
		}
	}
	return len(all) > 0
}
