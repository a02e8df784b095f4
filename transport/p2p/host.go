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
	"github.com/libp2p/go-libp2p/core/peerstore"
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

// Host is this process in the network of its job. It implements elastic.Network. All methods are
// safe for concurrent use.
type Host struct {
	*mesh.Mesh // the session protocol, over the streams of this host

	take      func(k mesh.Kind, s mesh.Stream) // the mesh's handler for streams that others open
	job       string
	id        elastic.ID
	keys      keys                 // sign for id
	host      *blankhost.BlankHost // negotiates the protocol of each stream
	swarm     *swarm.Swarm         // libp2p's connections
	below     []io.Closer          // parts of libp2p that close closes after the swarm, in this order
	gate      *gate                // which peers may connect
	throttle  *throttle            // rate limit for outsiders
	strangers *strangers           // connections of strangers
	port      *direct.Port         // nil if only libp2p is wanted
	local     *local               // nil where the system lacks such sockets, or Config.Path excludes them
	onOpen    func() error         // Config.OnOpen
	path      mesh.Path            // code of Config.Path
	encrypt   byte                 // code of Config.Encrypt
	identity  *libp2ptls.Identity  // for direct connections and Identify
	relay     *circuit.Relay       // nil unless Config.Relay allows it
	reserved  reservations         // at the relays of this host
	punch     *puncher             // nil if relay is nil, and for QUIC
	ports     *portMap             // mappings at the router
	routes    *routes              // fastest address of each host
	watch     *watch               // replaces paths that have become slow or stuck

	members protocol.Switch // handlers for the streams of members

	firstDials chan struct{} // semaphore: one element per first connection that is being made

	done    chan struct{}   // closed by Close
	life    context.Context // cancelled by Close, through end
	end     context.CancelFunc
	working sync.WaitGroup // handlers, and goroutines that read streams

	mu     sync.Mutex
	closed bool
	door   Door                        // nil admits nobody
	dials  map[peer.ID]*dial           // attempts in progress to connect
	failed map[peer.ID]int             // failed attempts since the last success
	silent map[direct.Target]time.Time // unresponsive targets, and the time of the last attempt
}

// Listen makes an identity and starts to listen. ctx limits only the start.
func Listen(ctx context.Context, cfg Config) (*Host, error) {
	h, err := listen(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("p2p: listen: %w", err)
	}
	return h, nil
}

// listen makes the host in steps. After an error it calls Close or close, which release what the
// completed steps have made.
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
	h.strangers = &strangers{expel: h.expel}
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

// Endpoint returns the host in the form that elastic needs of a network. self describes this
// process to others; its ID and Addrs are replaced by the host's.
func (h *Host) Endpoint(self elastic.Member) elastic.Endpoint {
	self.ID, self.Addrs = h.id, h.Addrs()
	return elastic.Endpoint{Self: self, Network: h, Keys: h.keys, Addrs: h.Addrs, Relay: h.relay != nil, Close: h.Close}
}

// ID returns the text form of the libp2p peer ID.
func (h *Host) ID() elastic.ID { return h.id }

// Addrs returns the multiaddrs under which others may reach the host: its own, then the addresses
// at its router (MapPorts), then those of loopback.
func (h *Host) Addrs() []string {
	var near, far []string
	for _, a := range h.listenAddrs() {
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

// listenAddrs returns the addresses at which the host itself listens, one for each interface.
func (h *Host) listenAddrs() []multiaddr.Multiaddr {
	// libp2p's list of interfaces may be a minute old.
	all := h.swarm.ListenAddresses()
	if own, err := manet.InterfaceMultiaddrs(); err == nil {
		if resolved, err := manet.ResolveUnspecifiedAddresses(all, own); err == nil {
			all = resolved
		}
	}
	return multiaddr.FilterAddrs(all, h.isAdvertised)
}

// isAdvertised reports whether a may be advertised as an address of a host. Relayed addresses may not,
// nor the UDP addresses of hole punching, which only the puncher sends.
func (h *Host) isAdvertised(a multiaddr.Multiaddr) bool {
	return !isRelayed(a) && (h.punch == nil || !udpOf(a).IsValid())
}

// handle returns a stream handler that calls f, and resets the stream once the host is closed.
// Close waits for f.
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

// begin counts a goroutine for which Close waits; false if the host is closed. After true the
// caller owes h.working.Done.
func (h *Host) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.working.Add(1)
	return true
}

// close ends all connections at once and waits for the host's goroutines. The mesh calls it in
// Close.
func (h *Host) close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	close(h.done)
	h.end()
	h.strangers.close()
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
