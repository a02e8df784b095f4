package p2p

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/gologshim"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/mesh"
	"github.com/elrun/elrun/transport/ticket"
)

// Host is this process in the network of its job. It implements elastic.Network. All methods are
// safe for concurrent use.
//
// Each part has its own state and lock. A part uses only the parts above it in this list, and the
// functions that the host passes to it.
type Host struct {
	*mesh.Mesh // the session protocol, over the streams of this host

	take func(k mesh.Kind, s mesh.Stream) // the mesh's handler for streams that others open
	job  string
	id   elastic.ID
	keys keys // sign for id

	tasks     *tasks       // lifetime of the host and its goroutines
	throttle  *throttle    // rate limit for outsiders
	conns     *conns       // libp2p, and the gate that decides which peers may connect
	local     *local       // Unix sockets within the host; nil where the system lacks them or Config.Path excludes them
	relays    *relays      // members that relay for this host; nil unless Config.Relay allows it
	punch     *puncher     // hole punching through routers; nil without relays
	dialer    *dialer      // connections and streams to peers
	listener  *listener    // addresses at which others reach this host
	addresses *addressBook // addresses of other hosts
	paths     *paths       // direct connections for data streams
	watch     *watch       // replaces paths that have become slow or stuck
	admission *admission   // strangers that prove their right to join
	proving   *proving     // proofs of this host's right to join
}

// Listen makes an identity and starts to listen. ctx limits only the start. The identity is a fresh
// Ed25519 key that never leaves the process: each Listen makes another peer. The caller closes the
// host.
func Listen(ctx context.Context, cfg Config) (*Host, error) {
	h, err := listen(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("p2p: listen: %w", err)
	}
	return h, nil
}

// listen makes the host in steps. After an error it calls Close or close, which release the
// resources of the completed steps.
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
	h := &Host{job: cfg.Job, id: elastic.ID(id.String()), keys: keys{key}, tasks: newTasks()}
	h.throttle = newThrottle(h.tasks.closed())
	h.conns = &conns{gate: newGate(id), tasks: h.tasks, handshakes: newHandshakes()}
	h.listener = &listener{conns: h.conns, ports: newPortMap(cfg.gateway)}
	h.admission = &admission{conns: h.conns, throttle: h.throttle, strangers: &strangers{expel: h.conns.expel}, onVersion: cfg.OnVersion, onObituaries: cfg.OnObituaries}
	h.proving = &proving{busy: make(map[peer.ID]chan struct{})}
	if cfg.Admission != nil {
		h.SetAdmission(cfg.Admission)
	}
	if err := h.build(cfg, key); err != nil {
		if h.Mesh != nil {
			return nil, errors.Join(err, h.Close())
		}
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

// Endpoint returns the host as the network of a group of package elastic. self describes this
// process to other members; Endpoint sets the ID and the Addrs of self. The group that gets the
// Endpoint closes the host.
func (h *Host) Endpoint(self elastic.Member) elastic.Endpoint {
	self.ID, self.Addrs = h.id, h.Addrs()
	return elastic.Endpoint{Self: self, Network: h, Keys: h.keys, Addrs: h.Addrs, Relay: h.relays != nil, Complete: h.Complete, Close: h.Close}
}

// ID returns the text form of the libp2p peer ID.
func (h *Host) ID() elastic.ID { return h.id }

// Addrs returns the multiaddrs under which others may reach the host: its own, then the addresses
// at its router (MapPorts), then the loopback addresses.
func (h *Host) Addrs() []string { return h.listener.addrs() }

// Open makes the host listen at further addresses, in the form of Config.ListenAddrs. After an
// error it may listen at some of them.
func (h *Host) Open(addrs []string) error {
	if !h.tasks.begin() {
		return fmt.Errorf("p2p: open: %w", net.ErrClosed)
	}
	defer h.tasks.end()
	err := h.listener.listenAt(addrs)
	h.listener.ports.poke()
	if err != nil {
		return fmt.Errorf("p2p: open: %w", err)
	}
	return nil
}

// Introduce implements elastic.Network. It admits the given members and records their addresses, in
// addition to those that are known. It has no effect for peers that Forget has banned. Without an
// admission policy the host refuses a peer that was not introduced, right after the security
// handshake. With a policy it refuses such a peer only if the peer does not prove a right to join.
// A member that connects before its introduction here retries.
func (h *Host) Introduce(members []elastic.Member) error {
	for _, m := range members {
		if m.ID == h.id {
			continue
		}
		id, addrs, err := h.conns.contact(m)
		if err != nil {
			return fmt.Errorf("p2p: introduce: %w", err)
		}
		if h.conns.gate.add(id) {
			h.conns.host.Peerstore().AddAddrs(id, addrs, peerstore.PermanentAddrTTL)
		}
	}
	return nil
}

// Forget closes all connections with a peer and bans the peer: a later Introduce does not lift the
// ban. Forget is for members that were put out; a process that still runs joins again under a new
// ID. Forget does not wait for the connections to end.
func (h *Host) Forget(id elastic.ID) {
	peerID, err := idOf(string(id))
	if err != nil {
		return // no peer has such an ID
	}
	h.conns.gate.ban(peerID)
	h.local.forget(id)
	h.conns.host.Peerstore().ClearAddrs(peerID)
	h.conns.hangUpPeer(peerID)
}

// SetAdmission sets the admission policy, by which newcomers may prove their right to join. A host
// without a policy refuses every peer that was not introduced.
func (h *Host) SetAdmission(p AdmissionPolicy) { h.admission.setPolicy(p) }

// Seal signs the record of a ticket with the key of this host. Other members verify it by the ID of
// this host, and accept it because that ID is in their view.
func (h *Host) Seal(r ticket.Record) ([]byte, error) { return r.Seal(h.keys.private) }

// UseHostKey makes this host and others of its kernel with the same key reach each other by Unix
// sockets alone. All peers of one launcher share the key, and nobody else has it. The caller must
// introduce the members of the first view before. Without a key, or with a key of another length,
// libp2p is used.
func (h *Host) UseHostKey(key []byte) { h.local.serve(key, h.take) }

// MapPorts asks this host's router to forward a port to each port at which the host listens on the
// network, now or after Open. It keeps the mappings until ctx ends or the host closes. Addrs then
// includes the external addresses, and the host announces them to the members. MapPorts calls report
// with the result, nil or an error of one line, whenever the result has changed.
func (h *Host) MapPorts(ctx context.Context, report func(error)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.tasks.life, cancel)()
	h.listener.ports.run(ctx, h.listener.mappable, h.addresses.announce, report)
}

// Mapped waits until the router has answered for all ports at which this host listens now, or until
// ctx ends. It returns at once if MapPorts does not run or finds no router. Callers call Mapped
// before they publish Addrs, for example in a ticket.
func (h *Host) Mapped(ctx context.Context) { h.listener.ports.await(ctx, h.listener.mappable) }

// Exchange sends a member the addresses of this host, and records the addresses of other hosts from
// the member's answer. With open it asks the member to listen on the network, and returns an error
// if the member does not. changed reports whether the member itself has new addresses.
func (h *Host) Exchange(ctx context.Context, to elastic.ID, open bool) (changed bool, err error) {
	changed, _, err = h.addresses.exchange(ctx, to, open)
	return changed, err
}

// Contacts makes an Exchange, without open, with a member that has admitted this host. It returns
// the peers that the member knows, the member included; most of them are members.
func (h *Host) Contacts(ctx context.Context, of elastic.ID) ([]elastic.Member, error) {
	_, answer, err := h.addresses.exchange(ctx, of, false)
	var out []elastic.Member
	for _, id := range slices.Sorted(maps.Keys(answer.Addrs)) {
		if _, err := idOf(string(id)); err == nil && id != h.id {
			out = append(out, elastic.Member{ID: id, Addrs: answer.Addrs[id]})
		}
	}
	return out, err
}

// Learn records the addresses of members without admitting them. They are kept until Forget, also
// for peers that are never introduced.
func (h *Host) Learn(members []elastic.Member) {
	for _, m := range members {
		h.addresses.learn(m.ID, m.Addrs)
	}
}

// Complete returns a copy of members in which each member has all its addresses that this host
// knows now, up to maxBookAddrs. A newcomer receives such a list, because a view has only the
// addresses at which its members listened when they joined.
func (h *Host) Complete(members []elastic.Member) []elastic.Member {
	return h.addresses.complete(members)
}

// connected is called with each new connection, before the peer can open streams. It ends the
// dialer's attempt to connect with the peer. libp2p waits for the call, so nothing here may block.
func (h *Host) connected(_ network.Network, c network.Conn) {
	h.dialer.endReached(c.RemotePeer())
	h.punch.onConnected(c)
	h.admission.onConnected(c)
}

// disconnected is called by libp2p at the end of each connection. Another connection with the peer
// may still exist.
func (h *Host) disconnected(_ network.Network, c network.Conn) {
	h.punch.onDisconnected(c)
	h.relays.replaceLost(c.RemotePeer())
}

// networkChanged handles a change of this host's addresses or interfaces. It drops all
// measurements, ends the connections from addresses that are gone, and sends the members the
// current listen addresses.
func (h *Host) networkChanged() {
	h.paths.routes.reset()
	own := ownAddrs()
	gone := func(ip netip.Addr) bool {
		return ip.IsValid() && !ip.IsUnspecified() && !slices.Contains(own, ip.WithZone("")) // QUIC reports the unspecified address
	}
	h.watch.leave(gone)
	h.conns.hangUpFrom(gone)
	h.tasks.run(h.addresses.announce)
}

// close ends all connections at once and waits for the host's goroutines. The mesh calls it in
// Close. It first stops the start of tasks. It then closes the sockets and connections on which
// tasks may block. Finally it waits for all tasks. It returns all errors.
func (h *Host) close() error {
	h.tasks.stop()
	h.admission.strangers.close()
	h.local.close()
	err := errors.Join(h.listener.close(), h.relays.close(), h.conns.close(), h.punch.close(), h.conns.release())
	h.tasks.wait()
	if err != nil {
		return fmt.Errorf("p2p: close: %w", err)
	}
	return nil
}

// quiet discards libp2p's log, unless the user has set libp2p's variable GOLOG_LOG_LEVEL. Errors
// that matter are returned to the caller.
func quiet() {
	if _, asked := os.LookupEnv("GOLOG_LOG_LEVEL"); !asked {
		gologshim.SetDefaultHandler(slog.DiscardHandler)
	}
}
