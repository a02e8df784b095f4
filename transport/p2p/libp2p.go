package p2p

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/core/transport"
	blankhost "github.com/libp2p/go-libp2p/p2p/host/blank"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	"github.com/libp2p/go-libp2p/p2p/host/peerstore/pstoremem"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/libp2p/go-libp2p/x/rate"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// muxer returns yamux with windows that are large from the start. On a local network the round trip
// is too short for yamux's windows to grow.
func muxer() *yamux.Transport {
	// A copy: other users of libp2p in this program keep the defaults.
	m := *yamux.DefaultTransport
	m.InitialStreamWindowSize = 4 << 20
	return &m
}

// handshakeTime is how long the security handshake of a connection may take, after which the peer
// ID is known. It also bounds each address that Identify tries. The timeout is long: on a host with
// many more peers than processors all handshakes share the processors, and a handshake that times
// out must start again.
const handshakeTime = 30 * time.Second

// addrTime bounds a dial to one address: the connection, which TCP gives up after 5 s, and the
// handshake.
const addrTime = handshakeTime + 5*time.Second

// resources limits the connections and streams of each peer. libp2p's defaults would allow 8
// connections per address, and so 8 peers per host. Unauthenticated inbound connections have a
// limit of their own, so that they cannot use up the capacity for outbound ones.
func resources() (network.ResourceManager, error) {
	// Two hosts usually have one connection, or one in each direction when both dial at once. A
	// relayed connection may exist in addition. Views add two streams to the control and bulk
	// streams.
	const peers, perPeer, streams = 1024, 8, 128
	// Limits that are not named here are infinite: the members of a group are trusted.
	partial := rcmgr.PartialLimitConfig{
		Transient: rcmgr.ResourceLimits{Conns: peers, ConnsInbound: maxHalfOpen, ConnsOutbound: peers, Streams: peers,
			StreamsInbound: peers, StreamsOutbound: peers},
		PeerDefault: rcmgr.ResourceLimits{
			Conns: perPeer, ConnsInbound: perPeer, ConnsOutbound: perPeer,
			Streams: streams, StreamsInbound: streams, StreamsOutbound: streams,
		},
	}
	return rcmgr.NewResourceManager(
		rcmgr.NewFixedLimiter(partial.Build(rcmgr.InfiniteLimits)),
		rcmgr.WithMetricsDisabled(),
		// One prefix length per IP version: a single IPv4 address, and the usual IPv6 network of
		// one organization.
		rcmgr.WithLimitPerSubnet(
			[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 32, ConnCount: peers}},
			[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 56, ConnCount: peers}}),
		// The empty limiter allows any rate: after a regrouping all members dial at once.
		rcmgr.WithConnRateLimiters(&rate.Limiter{}))
}

// build makes libp2p from its parts: a swarm with one transport, and the host that negotiates a
// protocol per stream. libp2p's usual constructor would add identify, AutoNAT, DCUtR and metrics;
// docs/internals/paths.md names their replacements in a closed group. After an error the caller
// calls close and release, which end the parts that exist.
func (c *conns) build(cfg Config, key crypto.PrivKey, t *throttle, r *routes) error {
	store, err := c.newStore(key)
	if err != nil {
		return err
	}
	manager, err := resources()
	if err != nil {
		return fmt.Errorf("set limits: %w", err)
	}
	limits := newHalfOpen(manager)
	c.limits = limits
	// release closes the elements of c.below after the swarm, also if a later step of build fails.
	c.below = append(c.below, limits)
	bus := eventbus.NewBus()
	c.swarm, err = swarm.NewSwarm(c.gate.self, store, bus,
		swarm.WithConnectionGater(c.gate),
		swarm.WithResourceManager(limits),
		swarm.WithDialRanker(nearFirst),
		swarm.WithDialTimeout(addrTime),
		swarm.WithDialTimeoutLocal(addrTime),
		// No black-hole detection: few dials fail in a group, and those that do are retried until
		// they succeed.
		swarm.WithUDPBlackHoleSuccessCounter(nil),
		swarm.WithIPv6BlackHoleSuccessCounter(nil))
	if err != nil {
		return fmt.Errorf("make swarm: %w", err)
	}
	c.host = blankhost.NewBlankHost(c.swarm, blankhost.WithEventBus(bus))
	if c.upgrader, err = newUpgrader(cfg, key, limits, c.gate); err != nil {
		return err
	}
	main, err := c.newTransport(t, r)
	if err != nil {
		return err
	}
	if err := c.swarm.AddTransport(main); err != nil {
		return fmt.Errorf("add transport: %w", err)
	}
	return nil
}

// newStore makes the peerstore, which holds libp2p's own key and the addresses to dial.
func (c *conns) newStore(key crypto.PrivKey) (peerstore.Peerstore, error) {
	store, err := pstoremem.NewPeerstore()
	if err != nil {
		return nil, fmt.Errorf("make peerstore: %w", err)
	}
	// release closes all elements of c.below, also after an error.
	c.below = append(c.below, store)
	if err := store.AddPrivKey(c.gate.self, key); err != nil {
		return nil, fmt.Errorf("store identity: %w", err)
	}
	if err := store.AddPubKey(c.gate.self, key.GetPublic()); err != nil {
		return nil, fmt.Errorf("store identity: %w", err)
	}
	return store, nil
}

// newTransport makes the TCP transport. t throttles its connections. r bounds the segment size of
// dialled connections to addresses to which long packets are lost.
func (c *conns) newTransport(t *throttle, r *routes) (transport.Transport, error) {
	// A dial from the listening port could collide with a dial in the opposite direction.
	plain, err := tcp.NewTCPTransport(meteredUpgrader{c.upgrader, t, c.handshakes}, c.limits, nil, tcp.DisableReuseport(), tcp.WithDialerForAddr(r.dialer))
	return scoped{plain}, err
}

// newUpgrader makes the part that turns TCP connections and circuits into streams: TLS, whose
// ciphers use the processor's AES instructions, and the multiplexer yamux.
func newUpgrader(cfg Config, key crypto.PrivKey, limits network.ResourceManager, g *gate) (transport.Upgrader, error) {
	muxers := []upgrader.StreamMuxer{{ID: yamux.ID, Muxer: muxer()}}
	security, err := libp2ptls.New(libp2ptls.ID, key, muxers)
	if err != nil {
		return nil, fmt.Errorf("make TLS: %w", err)
	}
	up, err := upgrader.New([]sec.SecureTransport{security}, muxers, nil, limits, g, upgrader.WithAcceptTimeout(cmp.Or(cfg.handshake, handshakeTime)))
	if err != nil {
		return nil, fmt.Errorf("make upgrader: %w", err)
	}
	return up, nil
}

// nearFirst is libp2p's dial ranker. Loopback is dialled first, as the cheapest path within a host.
// All other addresses follow together after a moment, or as soon as loopback has failed, and relays
// last. Of two loopback addresses the IPv4 one comes first: otherwise a peer that listens at both
// would do the work of two handshakes.
func nearFirst(addrs []multiaddr.Multiaddr) []network.AddrDelay {
	const moment, second = 250 * time.Millisecond, 500 * time.Millisecond // a loaded host is slow to answer even itself
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
