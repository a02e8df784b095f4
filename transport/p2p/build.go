package p2p

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/core/transport"
	"github.com/libp2p/go-libp2p/gologshim"
	blankhost "github.com/libp2p/go-libp2p/p2p/host/blank"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	"github.com/libp2p/go-libp2p/p2p/host/peerstore/pstoremem"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/libp2p/go-libp2p/x/rate"

	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/mesh"
)

// Protocol IDs of the streams.
const (
	controlProtocol protocol.ID = "/elrun/control/1"   // mesh.Control
	dataProtocol    protocol.ID = "/elrun/data/3"      // mesh.Data
	urgentProtocol  protocol.ID = "/elrun/urgent/1"    // mesh.Urgent
	bulkProtocol    protocol.ID = "/elrun/bulk/2"      // mesh.Bulk
	proveProtocol   protocol.ID = "/elrun/prove/1"     // requests of newcomers (prove.go)
	addrsProtocol   protocol.ID = "/elrun/addresses/1" // exchange of addresses (addresses.go)
	punchProtocol   protocol.ID = "/elrun/punch/1"     // hole punching (punchmsg.go)
	surveyProtocol  protocol.ID = "/elrun/survey/1"    // measurements of direct ports (watch.go)
	pingProtocol    protocol.ID = "/elrun/ping/1"      // liveness of a peer (watch.go)
)

// build makes libp2p from its parts: a swarm with one transport, and the host that negotiates a
// protocol per stream. libp2p's usual constructor would add identify, AutoNAT, DCUtR and metrics;
// docs/internals/paths.md names their replacements in a closed group. After an error
// Close releases the parts that were made before it.
func (h *Host) build(cfg Config, key crypto.PrivKey) error {
	store, err := h.store(key)
	if err != nil {
		return err
	}
	manager, err := resources()
	if err != nil {
		return fmt.Errorf("set limits: %w", err)
	}
	limits := newHalfOpen(manager)
	h.below = append(h.below, limits)
	bus := eventbus.NewBus()
	h.swarm, err = swarm.NewSwarm(h.gate.self, store, bus,
		swarm.WithConnectionGater(h.gate),
		swarm.WithResourceManager(limits),
		swarm.WithDialRanker(nearFirst),
		// No black-hole detection: few dials fail in a group, and those that do are retried until
		// they succeed.
		swarm.WithUDPBlackHoleSuccessCounter(nil),
		swarm.WithIPv6BlackHoleSuccessCounter(nil))
	if err != nil {
		return fmt.Errorf("make swarm: %w", err)
	}
	h.host = blankhost.NewBlankHost(h.swarm, blankhost.WithEventBus(bus))
	if err := h.addTransports(cfg, key, limits); err != nil {
		return err
	}
	h.setHandlers()
	if err := h.openPort(cfg, key); err != nil {
		return err
	}
	h.Mesh = mesh.New(carrier{h}, mesh.Config{Job: cfg.Job, Path: h.path, Site: h.offer(direct.Ticket{}).Site, Plan: cfg.plan})
	h.UseHostKey(cfg.HostKey)
	addrs := cfg.ListenAddrs
	if len(addrs) == 0 {
		addrs = defaultAddrs(cfg.Transport)
	}
	if err := h.listenAt(addrs); err != nil {
		return err
	}
	h.begin()
	go func() {
		defer h.working.Done()
		h.watchPaths()
	}()
	return nil
}

// setHandlers sets the handlers for the streams of members and of strangers. It runs before the
// host listens, so that no stream arrives without a handler.
func (h *Host) setHandlers() {
	for k := range mesh.Kinds {
		h.host.SetStreamHandler(protocolOf(k), h.handle(h.accept(k)))
	}
	h.host.SetStreamHandler(proveProtocol, h.handle(h.acceptProof))
	h.host.SetStreamHandler(addrsProtocol, h.handle(h.acceptAddrs))
	if h.punch != nil {
		h.host.SetStreamHandler(punchProtocol, h.handle(h.acceptPunch))
	}
	h.host.SetStreamHandler(surveyProtocol, h.handle(h.acceptSurvey))
	h.host.SetStreamHandler(pingProtocol, h.handle(h.acceptPing))
	h.members = h.host.Mux()
	h.swarm.SetStreamHandler(h.acceptStream)
	h.swarm.Notify(&network.NotifyBundle{ConnectedF: h.connected, DisconnectedF: h.disconnected})
}

// store makes the peerstore, which holds libp2p's own key and the addresses to dial.
func (h *Host) store(key crypto.PrivKey) (peerstore.Peerstore, error) {
	store, err := pstoremem.NewPeerstore()
	if err != nil {
		return nil, fmt.Errorf("make peerstore: %w", err)
	}
	h.below = append(h.below, store)
	if err := store.AddPrivKey(h.gate.self, key); err != nil {
		return nil, fmt.Errorf("store identity: %w", err)
	}
	if err := store.AddPubKey(h.gate.self, key.GetPublic()); err != nil {
		return nil, fmt.Errorf("store identity: %w", err)
	}
	return store, nil
}

// addTransports adds the TCP or QUIC transport of cfg, and circuits if cfg allows relays.
func (h *Host) addTransports(cfg Config, key crypto.PrivKey, limits network.ResourceManager) error {
	relay, err := code("relay", cfg.Relay, relayNames())
	if err != nil {
		return err
	}
	up, err := h.upgrader(cfg, key, limits)
	if err != nil {
		return err
	}
	var t transport.Transport
	switch cfg.Transport {
	case "", "tcp":
		// A dial from the listening port could collide with a dial in the opposite direction.
		var plain *tcp.TcpTransport
		plain, err = tcp.NewTCPTransport(meteredUpgrader{up, h.throttle}, limits, nil, tcp.DisableReuseport(), tcp.WithDialerForAddr(h.routes.dialer))
		t = scoped{plain}
	case "quic":
		t, err = h.quic(key, limits)
	default:
		err = fmt.Errorf("unknown transport %q (tcp or quic)", cfg.Transport)
	}
	if err != nil {
		return err
	}
	if err := h.swarm.AddTransport(t); err != nil {
		return fmt.Errorf("add transport: %w", err)
	}
	if relay == neverRelay {
		return nil
	}
	if cfg.Transport != "quic" { // QUIC has a socket of its own
		h.punch = newPuncher(h, key, limits, cfg.punch)
	}
	return h.openRelay(up, cfg.loopback)
}

// upgrader makes the part that turns TCP connections and circuits into streams: a security protocol
// and the multiplexer yamux.
func (h *Host) upgrader(cfg Config, key crypto.PrivKey, limits network.ResourceManager) (transport.Upgrader, error) {
	muxers := []upgrader.StreamMuxer{{ID: yamux.ID, Muxer: muxer()}}
	security, err := secure(cfg.Security, key, muxers)
	if err != nil {
		return nil, err
	}
	up, err := upgrader.New(security, muxers, nil, limits, h.gate, upgrader.WithAcceptTimeout(cmp.Or(cfg.handshake, handshakeTime)))
	if err != nil {
		return nil, fmt.Errorf("make upgrader: %w", err)
	}
	return up, nil
}

// handshakeTime is how long the security handshake of a connection may take, after which the peer
// ID is known.
const handshakeTime = 5 * time.Second

// muxer returns yamux with windows that are large from the start. On a local network the round trip
// is too short for yamux's windows to grow.
func muxer() *yamux.Transport {
	m := *yamux.DefaultTransport
	m.InitialStreamWindowSize = 4 << 20
	return &m
}

// secure returns the security protocols for a value of Config.Security, in order of preference. TLS
// comes first, as the standard library uses the processor's AES instructions.
func secure(name string, key crypto.PrivKey, muxers []upgrader.StreamMuxer) ([]sec.SecureTransport, error) {
	var all []sec.SecureTransport
	if name == "" || name == "tls" {
		t, err := libp2ptls.New(libp2ptls.ID, key, muxers)
		if err != nil {
			return nil, fmt.Errorf("make TLS: %w", err)
		}
		all = append(all, t)
	}
	if name == "" || name == "noise" {
		t, err := noise.New(noise.ID, key, muxers)
		if err != nil {
			return nil, fmt.Errorf("make Noise: %w", err)
		}
		all = append(all, t)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("unknown security %q (tls or noise)", name)
	}
	return all, nil
}

// quic makes the QUIC transport, which has its own security and streams.
func (h *Host) quic(key crypto.PrivKey, limits network.ResourceManager) (transport.Transport, error) {
	var reset, token [32]byte
	for _, b := range [][]byte{reset[:], token[:]} {
		if _, err := rand.Read(b); err != nil {
			return nil, fmt.Errorf("make QUIC keys: %w", err)
		}
	}
	manager, err := quicreuse.NewConnManager(reset, token)
	if err != nil {
		return nil, fmt.Errorf("make QUIC: %w", err)
	}
	h.below = append(h.below, manager)
	return libp2pquic.NewTransport(key, manager, nil, h.gate, limits)
}

// resources limits the connections and streams of each peer. libp2p's defaults would allow 8
// connections per address, and so 8 peers per host. Unauthenticated inbound connections have a
// limit of their own, so that they cannot use up the capacity for outbound ones.
func resources() (network.ResourceManager, error) {
	const peers, perPeer, streams = 1024, 8, 128
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
		rcmgr.WithLimitPerSubnet(
			[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 32, ConnCount: peers}},
			[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 56, ConnCount: peers}}),
		rcmgr.WithConnRateLimiters(&rate.Limiter{}))
}

// quiet discards libp2p's log, unless the user has set libp2p's variable GOLOG_LOG_LEVEL. Errors
// that matter are returned to the caller.
func quiet() {
	if _, asked := os.LookupEnv("GOLOG_LOG_LEVEL"); !asked {
		gologshim.SetDefaultHandler(slog.DiscardHandler)
	}
}

// idOf returns the libp2p form of an ID.
func idOf(text string) (peer.ID, error) {
	id, err := peer.Decode(text)
	if err != nil {
		return "", fmt.Errorf("peer ID %q: %w", text, err)
	}
	return id, nil
}
