package p2p

import (
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/mesh"
)

// build makes the parts of the host, each after the parts that it uses, and begins to listen when
// all exist. After an error the caller calls close, which ends the parts that exist. Fields of Host
// and of its parts are set only here and in listen, so they need no lock.
func (h *Host) build(cfg Config, key crypto.PrivKey) error {
	routes, list := newRoutes(), newWatchList()
	if err := h.conns.build(cfg, key, h.throttle, routes); err != nil {
		return err
	}
	if err := h.addRelays(cfg, key); err != nil {
		return err
	}
	h.admission.admitted = h.punch.tryPunch
	// These parts use the connections: streams, addresses of other hosts, and direct paths.
	h.dialer = newDialer(h.conns, h.relays, h.punch)
	h.addresses = &addressBook{dialer: h.dialer, ask: carrier{h}.ask, self: h.id, own: h.listener.addrs, onOpen: cfg.OnOpen}
	// paths adds connections to list, and watch checks them.
	h.paths = &paths{conns: h.conns, listener: h.listener, routes: routes, punch: h.punch, list: list}
	if err := h.paths.configure(cfg, key); err != nil {
		return err
	}
	h.watch = &watch{dialer: h.dialer, list: list, routes: routes}
	if err := h.openPort(); err != nil {
		return err
	}
	h.setHandlers()
	// The mesh sets h.take, the function that the handlers and UseHostKey call with each stream.
	h.Mesh = mesh.New(carrier{h}, mesh.Config{Job: cfg.Job, Path: h.paths.path, KernelID: h.paths.offer(direct.Ticket{}).KernelID, Answer: carrier{h}.answer, Memory: cfg.Memory, Plan: cfg.plan})
	h.UseHostKey(cfg.HostKey)
	addrs := cfg.ListenAddrs
	// Listening is the last step that may fail: from then on handlers run.
	if len(addrs) == 0 {
		addrs = []string{"/ip4/0.0.0.0/tcp/0"}
	}
	if err := h.listener.listenAt(addrs); err != nil {
		return err
	}
	h.tasks.run(func() { h.watch.run(h.networkChanged) })
	return nil
}

// addRelays adds circuits and hole punching, if cfg allows relays.
func (h *Host) addRelays(cfg Config, key crypto.PrivKey) error {
	relay, err := code("relay", cfg.Relay, relayNames())
	// Without relays h.relays and h.punch stay nil. The methods that Host calls accept a nil
	// receiver.
	if err != nil || relay == neverRelay {
		return err
	}
	if h.relays, err = newRelays(h.conns, cfg.loopback); err != nil {
		return err
	}
	h.listener.relays = h.relays
	h.punch = newPuncher(h.relays, h.throttle, key, cfg.punch)
	h.punch.ask = carrier{h}.ask
	return nil
}

// openPort opens the direct port, with its Unix socket. It listens at addresses once listenAt adds
// them.
func (h *Host) openPort() (err error) {
	var cfg direct.Config
	switch h.paths.path {
	case mesh.StreamPath: // all streams of views are libp2p streams
		return nil
	case mesh.DirectPath:
	default:
		cfg.ID = string(h.id)
	}
	if h.listener.port, err = direct.Open(cfg); err == nil && cfg.ID != "" {
		h.local = &local{port: h.listener.port, gate: h.conns.gate, peers: make(map[elastic.ID]locality), streams: make(map[*direct.Conn]hostStream)}
	}
	return err
}

// setHandlers sets the handlers for the streams of members and of strangers. It runs before the
// host listens, so that no stream arrives without a handler.
func (h *Host) setHandlers() {
	set := func(p protocol.ID, f func(network.Stream)) {
		h.conns.host.SetStreamHandler(p, h.tasks.handle(f))
	}
	for k := range mesh.Kinds {
		set(protocolOf(k), carrier{h}.accept(k))
	}
	set(proveProtocol, h.admission.acceptWords)
	// Streams go through admission first, which passes the streams of members on to the handlers
	// above.
	h.admission.members = h.conns.host.Mux()
	h.conns.swarm.SetStreamHandler(h.admission.acceptStream)
	h.conns.swarm.Notify(&network.NotifyBundle{ConnectedF: h.connected, DisconnectedF: h.disconnected})
}

// relayNames returns the values of Config.Relay. The index of each is its code.
func relayNames() []string { return []string{"never", "members"} }
