package p2p

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	blankhost "github.com/libp2p/go-libp2p/p2p/host/blank"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	circuit "github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/relay"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/mesh"
)

// Config says how a Host listens. Only Job is required.
type Config struct {
	// Job is compared when data connections are made; at most mesh.MaxJob bytes.
	Job string
	// Security is "tls", "noise" or "" for both, TLS preferred. QUIC has its own TLS.
	Security string
	// Transport is "tcp" (also "") or "quic".
	Transport string
	// ListenAddrs are multiaddrs, as in /ip4/127.0.0.1/tcp/0. With a range of ports, as in
	// /ip4/192.0.2.1/tcp/7000-7019, a host takes free ones of these: one for libp2p and, but for
	// Path p2p, one for direct connections. Empty means all IPv4 interfaces and any port.
	ListenAddrs []string
	// OnOpen is called when a member says that the job was opened to the network: it is to
	// call Open, if that is wanted. It may be called by several goroutines at once; nil
	// refuses.
	OnOpen func() error
	// Path is how data travels: "auto" (also ""), the best way there is to each of the
	// others; "shm", an error unless all of a view are on one host and share memory; "unix",
	// Unix sockets on one host and direct connections between hosts; "direct", a connection
	// of its own; "p2p", streams of libp2p. But for shm, libp2p's streams stand in where the
	// others fail.
	Path string
	// Encrypt is whether direct connections are encrypted: "auto" (also "") and "always",
	// or "never", if both sides say so. What stays within a host's kernel never is, and
	// libp2p's streams always are.
	Encrypt string
	// Relay is whether this host and another member that cannot connect reach each other by
	// way of a third, and may be such a way: "never" (also ""), or "members", if all three
	// say so. Those two also look for a direct way through the routers between them.
	Relay string
	// Door says which newcomers are let in. Without it only those that were introduced are;
	// SetDoor sets it later.
	Door Door

	// HostKey is what this host and others of its kernel share, of HostKeySize bytes: they reach
	// each other by Unix sockets alone (UseHostKey sets it later).
	HostKey []byte

	handshake time.Duration                          // in place of handshakeTime in tests; 0 for none
	gateway   func(context.Context) (gateway, error) // in place of discoverGateway in tests
	loopback  bool                                   // in tests: loopback counts as a network, on which relays are of use
	punch     bool                                   // in tests: ways through routers are looked for on loopback, too
}

// Host is this process on the network of its job. It is its own elastic.Network.
// All methods are safe for concurrent use.
type Host struct {
	*mesh.Mesh // the session protocol, over the streams of this host

	take     func(k mesh.Kind, s mesh.Stream) // of mesh: the streams that others open
	job      string
	id       elastic.ID
	keys     keys
	host     *blankhost.BlankHost
	swarm    *swarm.Swarm
	below    []io.Closer // what libp2p is made of, closed after it in order
	gate     *gate
	throttle *throttle
	lobby    *lobby
	port     *direct.Port // nil if only libp2p is wanted
	local    *local       // nil where there are no such sockets, or other ways are wanted
	onOpen   func() error // Config.OnOpen
	path     mesh.Path
	encrypt  byte                // code of Config.Encrypt
	identity *libp2ptls.Identity // for direct connections, and Identify
	relay    *circuit.Relay      // nil unless the user allows it
	reserved reservations        // at others
	punch    *puncher            // nil where relay is, and for QUIC
	ports    *portMap
	routes   *routes
	watch    *watch

	members   protocol.Switch // who handles the streams of members, and of all others
	strangers protocol.Switch

	firstDials chan struct{} // a place per first connection that is being made

	done    chan struct{}   // closed by Close
	life    context.Context // ended by Close, with end
	end     context.CancelFunc
	working sync.WaitGroup // handlers and readers of streams

	mu     sync.Mutex
	closed bool
	door   Door                        // nil lets in nobody
	dials  map[peer.ID]*dial           // attempts to connect
	failed map[peer.ID]int             // those that have failed since the last that did not
	silent map[direct.Target]time.Time // did not answer at that time
}

// Listen makes an identity and starts to listen. ctx bounds only the start.
func Listen(ctx context.Context, cfg Config) (*Host, error) {
	h, err := listen(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("p2p: listen: %w", err)
	}
	return h, nil
}

// listen makes the host in steps; Close releases what the steps before an error made.
func listen(ctx context.Context, cfg Config) (*Host, error) {
	if len(cfg.Job) > mesh.MaxJob {
		return nil, fmt.Errorf("job name of %d bytes, at most %d", len(cfg.Job), mesh.MaxJob)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	quiet()
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make identity: %w", err)
	}
	id, err := peer.IDFromPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make identity: %w", err)
	}
	h := &Host{
		job: cfg.Job, id: elastic.ID(id.String()), gate: newGate(id), keys: keys{key}, onOpen: cfg.OnOpen,
		firstDials: make(chan struct{}, maxFirstDials), done: make(chan struct{}),
		dials:  make(map[peer.ID]*dial),
		failed: make(map[peer.ID]int),
		silent: make(map[direct.Target]time.Time),
	}
	h.life, h.end = context.WithCancel(context.Background())
	h.throttle = newThrottle(h.done)
	h.lobby = &lobby{expel: h.expel}
	h.routes, h.watch, h.ports = newRoutes(), newWatch(), newPortMap(cfg.gateway)
	if cfg.Door != nil {
		h.SetDoor(cfg.Door)
	}
	if err := h.build(cfg, key); err != nil {
		if h.Mesh != nil {
			return nil, errors.Join(err, h.Close())
		}
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

// Endpoint returns the host as what elastic needs of a network. self says how others
// see this process; its ID and addresses are the host's, whatever it says.
func (h *Host) Endpoint(self elastic.Member) elastic.Endpoint {
	self.ID, self.Addrs = h.id, h.Addrs()
	return elastic.Endpoint{Self: self, Network: h, Keys: h.keys, Close: h.Close}
}

// ID returns the text form of the libp2p peer ID.
func (h *Host) ID() elastic.ID { return h.id }

// Addrs returns the multiaddrs under which others may reach the host: its own, those of its router
// (MapPorts), and those of loopback last.
func (h *Host) Addrs() []string {
	var near, far []string
	for _, a := range h.places() {
		if manet.IsIPLoopback(a) {
			near = append(near, a.String())
		} else {
			far = append(far, a.String())
		}
	}
	for _, a := range h.mapped() {
		far = append(far, a.String())
	}
	return slices.Concat(far, near)
}

// places returns the addresses at which the host listens itself.
func (h *Host) places() []multiaddr.Multiaddr {
	// What libp2p says of its interfaces may be a minute old.
	all := h.swarm.ListenAddresses()
	if own, err := manet.InterfaceMultiaddrs(); err == nil {
		if resolved, err := manet.ResolveUnspecifiedAddresses(all, own); err == nil {
			all = resolved
		}
	}
	return multiaddr.FilterAddrs(all, h.isPlace)
}

// isPlace reports whether others may dial an address at which this host, or another one, can be
// found: those that only a puncher makes use of are told by it alone.
func (h *Host) isPlace(a multiaddr.Multiaddr) bool {
	return !isRelayed(a) && (h.punch == nil || !udpOf(a).IsValid())
}

// handle lets f handle the streams that peers open for protocol p, until Close.
func (h *Host) handle(f func(network.Stream)) network.StreamHandler {
	return func(s network.Stream) {
		if !h.begin() {
			_ = s.Reset() // the connection is about to close
			return
		}
		defer h.working.Done()
		f(s)
	}
}

// begin counts a goroutine for which Close waits, unless the host is closed.
func (h *Host) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.working.Add(1)
	return true
}

// close ends all connections at once and waits for the host's goroutines. Close, the mesh's,
// calls it.
func (h *Host) close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	close(h.done)
	h.end()
	h.lobby.close()
	var errs []error
	if h.port != nil {
		errs = append(errs, h.port.Close())
	}
	errs = append(errs, h.local.close())
	if h.relay != nil {
		errs = append(errs, h.relay.Close())
	}
	if h.host != nil {
		errs = append(errs, h.host.Close())
	}
	errs = append(errs, h.punch.close())
	for _, c := range h.below {
		errs = append(errs, c.Close())
	}
	h.working.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("p2p: close: %w", err)
	}
	return nil
}
