package p2p

import (
	"cmp"
	"crypto/rand"
	"fmt"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/core/transport"
	blankhost "github.com/libp2p/go-libp2p/p2p/host/blank"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	"github.com/libp2p/go-libp2p/p2p/host/peerstore/pstoremem"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"

	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/mesh"
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
