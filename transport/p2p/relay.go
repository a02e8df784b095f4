package p2p

import (
	"context"
	"fmt"
	"net"
	"sync"
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
// circuits. What passes is encrypted between the two at the ends. Whoever may be reached so
// reserves a place at each member that it has a connection with; whoever looks for a member
// tries the addresses of its own first, and then each of those with which it is connected.

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
)

// openRelay lets this host be reached by way of members, and be such a way itself.
func (h *Host) openRelay(up transport.Upgrader) error {
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

// reserve asks a member for a place, by the connection that they have.
func (h *Host) reserve(c network.Conn) {
	if h.relay == nil || isRelayed(c.RemoteMultiaddr()) || !h.begin() {
		return
	}
	go func() {
		defer h.working.Done()
		ctx, cancel := context.WithTimeout(network.WithNoDial(h.life, "reserve"), reserveTime)
		defer cancel()
		_, _ = client.Reserve(ctx, h.host, peer.AddrInfo{ID: c.RemotePeer()}) // who does not allow it is no way
	}()
}

// tellWays tells libp2p by whom a peer may be reached with which there is no connection.
func (h *Host) tellWays(id peer.ID) {
	if h.relay == nil {
		return
	}
	var ways []multiaddr.Multiaddr
	for _, c := range h.swarm.Conns() {
		if by := c.RemotePeer(); by != id && h.gate.has(by) && !isRelayed(c.RemoteMultiaddr()) {
			ways = append(ways, circuitBy(by))
		}
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
