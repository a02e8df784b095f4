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
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/client"
	circuit "github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/relay"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/elrun/elrun/elastic"
)

// Two members behind routers that block inbound connections cannot connect. If all three allow
// relays, the two reach each other through a third member with which both have a connection. The
// mechanism is libp2p's circuit relay v2, which corresponds to TURN (RFC 8656) in WebRTC. The two
// ends encrypt the bytes; the relay cannot read them.
//
// Every host reserves slots at some members of other hosts with which it has direct connections. A
// host that looks for a member dials the member's own addresses first, and then circuits through
// some members. All hosts prefer relays in the same order, so that two hosts with common members
// choose a common relay.

const (
	// relayDelay is the time from the dials of a member's own addresses to the dials of circuits.
	// If all own addresses have failed before, circuits are dialled at once. While an own address
	// is in the handshake, circuits wait longer (circuitTransport).
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

// relays has the members that relay for this host, and lets this host relay for them. All methods
// are safe for concurrent use. A host that uses no relays has a nil relays: the methods that
// carrier, dialer, listener and Host call accept a nil receiver.
//
// A member goes through these states here:
//
//	none    -> asked     take: it is among the maxRelays preferred members with a direct connection
//	asked   -> reserved  it grants the reservation; both states are an entry of held
//	asked   -> none      it refuses, or does not know this host yet (leave)
//	any     -> none      its last connection ends (replaceLost), and the next preferred one is asked
type relays struct {
	*conns

	service  *circuit.Relay // relays for others
	loopback bool           // tests: peers on loopback count as other hosts
	wide     atomic.Bool    // this host listens on an interface other than loopback

	// mu guards the fields below.
	mu sync.Mutex
	// held has the reservations by member, also while a member is being asked. The value is true if
	// the member is on a local network.
	held map[peer.ID]bool
}

// newRelays adds circuits to libp2p's transports, and begins to relay for others.
func newRelays(c *conns, loopback bool) (*relays, error) {
	r := &relays{conns: c, loopback: loopback, held: make(map[peer.ID]bool)}
	r.wide.Store(loopback)
	circuits, err := client.New(c.host, c.upgrader)
	if err == nil {
		err = c.swarm.AddTransport(circuitTransport{circuits, c})
	}
	if err == nil {
		err = c.swarm.Listen(multiaddr.StringCast("/p2p-circuit"))
	}
	if err != nil {
		return nil, fmt.Errorf("add circuits: %w", err)
	}
	circuits.Start()
	if r.service, err = circuit.New(c.host, circuit.WithResources(circuitLimits())); err != nil {
		return nil, fmt.Errorf("make relay: %w", err)
	}
	return r, nil
}

// close ends the circuits of others through this host.
func (r *relays) close() error {
	if r == nil {
		return nil
	}
	return r.service.Close()
}

// widen records that this host listens on an interface other than loopback. A host that listens
// only on loopback has no use for relays.
func (r *relays) widen() {
	if r != nil {
		r.wide.Store(true)
	}
}

// inUse reports whether this host dials members through relays, too.
func (r *relays) inUse() bool { return r != nil && r.wide.Load() }

// circuitLimits returns the limits of the relay. They are high, because members trust each other
// and have connections and memory for each other anyway. A reservation ends with its connection.
func circuitLimits() circuit.Resources {
	const many, forever = 1024, 10 * 365 * 24 * time.Hour
	return circuit.Resources{ReservationTTL: forever, MaxReservations: many, MaxReservationsPerIP: many,
		MaxReservationsPerASN: many, MaxCircuits: many, BufferSize: 128 << 10}
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

// enough reports whether this host prefers maxRelays of its reservations to a reservation at the
// peer of c. If not, the caller asks for a reservation, and the less preferred reservations stay:
// they cost little, and hosts that still dial this host through the older relays reach it.
func (r *relays) enough(c network.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	better := 0
	for id, local := range r.held {
		if relayOrder(id, c.RemotePeer(), local, isLocal(c)) <= 0 {
			better++
		}
	}
	return better >= maxRelays
}

// isRemote reports whether a connection is a direct one with another host, and not made by hole
// punching. Only the peer of such a connection is useful as a relay: a peer on this host reaches
// only the hosts that this host reaches, and a punched path carries only UDP.
func (r *relays) isRemote(c network.Conn) bool {
	a := c.RemoteMultiaddr()
	return ipOf(a) != nil && (r.loopback || !manet.IsIPLoopback(a)) && !isPunched(c)
}

// take records that a member is asked for a reservation; false if it was asked before. The record
// is made before the request, so that two goroutines do not ask the same member.
func (r *relays) take(c network.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, asked := r.held[c.RemotePeer()]; asked {
		return false
	}
	r.held[c.RemotePeer()] = isLocal(c)
	return true
}

// leave removes the record of a member, and reports whether there was one.
func (r *relays) leave(id peer.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, had := r.held[id]
	delete(r.held, id)
	return had
}

// candidates returns direct connections with members on other hosts, one for each host, in the
// order of relayOrder. It returns at most as many connections as the parameter most says, and none
// with the member except.
func (r *relays) candidates(except peer.ID, most int) []network.Conn {
	var all []network.Conn
	for _, c := range r.swarm.Conns() {
		if id := c.RemotePeer(); id != except && r.isRemote(c) && r.gate.isMember(id) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b network.Conn) int {
		// All members sort in the same order, so two members that need a relay usually choose the
		// same relay.
		return relayOrder(a.RemotePeer(), b.RemotePeer(), isLocal(a), isLocal(b))
	})
	hosts, have := make(map[string]bool), make(map[peer.ID]bool)
	return slices.DeleteFunc(all, func(c network.Conn) bool {
		at, id := ipOf(c.RemoteMultiaddr()).String(), c.RemotePeer()
		if len(have) >= most || have[id] || hosts[at] && !r.loopback {
			return true
		}
		// One relay for each host: if a host fails, the others still relay.
		hosts[at], have[id] = true, true
		return false
	})
}

// reserve asks for reservations if the other end of c would be a preferred relay.
func (r *relays) reserve(c network.Conn) {
	if r != nil && r.isRemote(c) && !r.enough(c) {
		r.reserveAll()
	}
}

// reserveAll asks the preferred members for reservations, in the background, unless they were asked
// before.
func (r *relays) reserveAll() {
	for _, c := range r.candidates("", maxRelays) {
		id := c.RemotePeer()
		if !r.take(c) {
			continue
		}
		r.tasks.run(func() {
			ctx, cancel := context.WithTimeout(network.WithNoDial(r.tasks.life, "reserve"), reserveTime)
			defer cancel()
			if _, err := client.Reserve(ctx, r.host, peer.AddrInfo{ID: id}); err != nil {
				r.leave(id) // a member that refuses, or does not know this host yet, is no relay
			}
		})
	}
}

// replaceLost replaces the reservation at a member whose last connection has ended.
func (r *relays) replaceLost(id peer.ID) {
	if r != nil && r.swarm.Connectedness(id) != network.Connected && r.leave(id) {
		r.reserveAll()
	}
}

// addCircuits adds circuit addresses of a peer, through the preferred members, to libp2p's
// peerstore. This host does not know at which of these members the peer has a reservation; a dial
// through a member without the reservation fails at once. As both hosts prefer the same members,
// one of the first members usually has the reservation.
func (r *relays) addCircuits(id peer.ID) {
	if !r.inUse() {
		return
	}
	var all []multiaddr.Multiaddr
	for _, c := range r.candidates(id, maxRelays) {
		all = append(all, circuitBy(c.RemotePeer()))
	}
	r.host.Peerstore().AddAddrs(id, all, relayedTime)
}

// dropRelays makes direct connections, in the background, with the members of v that are reached
// only through relays, and calls then with each of them. The next view uses these connections.
func (r *relays) dropRelays(v elastic.View, then func(peer.ID)) {
	if r == nil {
		return
	}
	for _, m := range v.Members {
		id, err := r.gate.decode(m.ID)
		if err != nil || !r.onlyRelayed(id) {
			continue
		}
		r.tasks.run(func() {
			ctx, cancel := context.WithTimeout(network.WithForceDirectDial(r.tasks.life, "drop relays"), dropRelayTime)
			defer cancel()
			if r.acceptsTCP(ctx, id) {
				r.swarm.Backoff().Clear(id)
				_, _ = r.swarm.DialPeer(ctx, id) // the relayed connection remains
			}
			then(id)
		})
	}
}

// acceptsTCP reports whether a TCP address of a peer accepts connections. It avoids long attempts
// of swarm.DialPeer: during an attempt libp2p may return a connection of the attempt that has
// already ended.
func (r *relays) acceptsTCP(ctx context.Context, id peer.ID) bool {
	ctx, cancel := context.WithCancel(ctx)
	var tries sync.WaitGroup
	defer tries.Wait()
	defer cancel()
	all := multiaddr.FilterAddrs(r.host.Peerstore().Addrs(id), func(a multiaddr.Multiaddr) bool {
		_, err := a.ValueForProtocol(multiaddr.P_TCP)
		return err == nil && !isRelayed(a)
	})
	// The channel has room for all answers, so that no attempt blocks after the first success.
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

// circuitBy returns the address of a peer that has a reservation at id, without the peer's own ID.
func circuitBy(id peer.ID) multiaddr.Multiaddr {
	return multiaddr.StringCast("/p2p/" + id.String() + "/p2p-circuit")
}
