package p2p

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"

	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/mesh"
)

// paths finds and makes the direct connection that replaces the libp2p stream of a data stream. The
// fields do not change once the host is built. All methods are safe for concurrent use.
//
// A path is chosen in three steps. candidates says which kinds both sides want and this side may
// dial. byTCP puts the addresses of the peer in order, by a measurement if there are several.
// dialFirst dials in that order until one target answers. A failed dial is no error of the view:
// the libp2p stream stays the data stream, and the path event has the reason.
type paths struct {
	*conns

	path    mesh.Path // code of Config.Path
	encrypt byte      // code of Config.Encrypt
	// identity is the identity of this host in TLS.
	identity *libp2ptls.Identity
	listener *listener  // has the direct port and its addresses
	routes   *routes    // has measurements of the addresses of others
	punch    *puncher   // has the reason why a relayed connection was not replaced
	list     *watchList // receives the connections to check
}

// configure checks Config.Path and Config.Encrypt, and makes the TLS identity of direct
// connections.
func (p *paths) configure(cfg Config, key crypto.PrivKey) error {
	path, err := code("path", cfg.Path, mesh.Paths())
	encrypt, err2 := code("encryption", cfg.Encrypt, encryptNames())
	identity, err3 := libp2ptls.NewIdentity(key)
	if err3 != nil {
		err3 = fmt.Errorf("make TLS identity: %w", err3)
	}
	p.path, p.encrypt, p.identity = mesh.Path(path), encrypt, identity
	return errors.Join(err, err2, err3)
}

// offer returns this host's offer with ticket t. With the zero ticket the receiver cannot dial.
func (p *paths) offer(t direct.Ticket) *offer {
	o := &offer{path: p.path, encrypt: p.encrypt}
	if p.listener.port != nil {
		o.Offer = p.listener.port.Offer(t)
		o.Addrs = slices.Concat(o.Addrs, p.listener.outerPorts(o.Addrs))
	}
	return o
}

// encryption returns the TLS configuration for direct connections with a peer, or nil if both sides
// have Encrypt "never". TLS checks the peers' libp2p identities: each side sends a self-signed
// certificate with a signature by the key of its ID (libp2p's TLS specification).
func (p *paths) encryption(id peer.ID, theirs *offer) *tls.Config {
	// Both offers came over authenticated streams, so no third party can switch encryption off.
	if p.encrypt == neverEncrypt && theirs.encrypt == neverEncrypt {
		return nil
	}
	// One side alone cannot switch encryption off, because its user cannot decide for the user of
	// the other side.
	cfg, _ := p.identity.ConfigForPeer(id) // the channel of the key is not needed: the key is in the ID
	cfg.DynamicRecordSizingDisabled = true // small first records are for web pages, and cost time here
	return cfg
}

// errSilent means that the target did not answer in the last silentTime.
var errSilent = errors.New("not dialled, because it did not answer within the last minute")

// conclude ends the upgrade of a data stream. With a connection it closes s, begins to watch c, and
// returns the stream over c. Without a connection it returns s as the fallback. why is the reason for
// the choice.
func (p *paths) conclude(s *stream, c *direct.Conn, why string) mesh.Stream {
	if c == nil {
		return fallback{s, why}
	}
	_ = s.Close() // both sides have read all of it
	p.list.add(c, s.Conn().RemotePeer())
	return socketOf(c, s.Peer(), why)
}

// dialBest dials the best direct connection that both sides want. The result why is the reason why
// c is nil or is not of the best kind, or the measured rates of the addresses if there were
// several. Both results are zero if no direct connection is wanted.
func (p *paths) dialBest(ctx context.Context, s *stream, theirs *offer) (c *direct.Conn, why string) {
	unix, tcp := p.candidates(s, theirs)
	if unix != nil {
		if c, why = p.dialFirst(ctx, s, theirs, []direct.Target{*unix}); c != nil {
			return c, ""
		}
	}
	if !tcp {
		return nil, why
	}
	// If the dial of the Unix socket has failed, why stays its error, which explains why no better
	// kind was taken.
	all, chosen := p.byTCP(ctx, s.Conn(), theirs)
	c, late := p.dialFirst(ctx, s, theirs, all)
	if why == "" {
		why = late
	}
	if c != nil && why == "" {
		why = chosen
	}
	return c, why
}

// dialFirst dials targets in their order until one is reached. why is the error of the first
// failure; "" if there was none.
func (p *paths) dialFirst(ctx context.Context, s *stream, theirs *offer, all []direct.Target) (c *direct.Conn, why string) {
	for _, to := range all {
		c, err := p.dialTarget(ctx, s.Conn().RemotePeer(), to, theirs)
		if err == nil {
			return c, why
		}
		if why == "" {
			why = err.Error()
		}
	}
	return nil, why
}

// candidates returns the peer's Unix socket if this host may dial it, nil otherwise, and whether
// this host may dial over TCP.
func (p *paths) candidates(s *stream, theirs *offer) (unix *direct.Target, tcp bool) {
	mine := p.offer(direct.Ticket{})
	// A TCP dial to the address of a punched connection would reach only the peer's router.
	if mine.path == mesh.StreamPath || theirs.path == mesh.StreamPath || isPunched(s.Conn()) {
		return nil, false
	}
	if sameKernel(mine, theirs) {
		to := direct.UnixTarget(string(s.Peer()))
		unix = &to
	}
	addr, ok := hostOf(s.Conn().RemoteMultiaddr())
	if ok {
		_, ok = theirs.ByTCP(addr)
	}
	return unix, ok
}

// dialTarget dials one target, and marks it as unresponsive if a TCP dial has no answer in time, for
// example behind a firewall that drops packets.
func (p *paths) dialTarget(ctx context.Context, id peer.ID, to direct.Target, theirs *offer) (*direct.Conn, error) {
	// Each dial of an unresponsive target would cost the view the timeout.
	if p.routes.isSilent(to) {
		return nil, fmt.Errorf("%s %s: %w", to.Network, to.Addr, errSilent)
	}
	c, err := direct.Dial(ctx, to, theirs.Ticket, p.encryption(id, theirs))
	// Only a timeout of this dial counts: a refusal is quick the next time, too, and the end of ctx
	// says nothing about the target.
	var late net.Error
	if errors.As(err, &late) && late.Timeout() && to.Network == "tcp" && ctx.Err() == nil {
		p.routes.markSilent(to)
	}
	return c, err
}

// addrsOf returns the addresses at which direct connections with a peer may be dialled, at most
// maxRouteAddrs: first reached, the address of libp2p's connection, then others that the peer has
// announced. It leaves out loopback and link-local addresses, and the addresses of this host.
func (p *paths) addrsOf(id peer.ID, reached netip.Addr) []netip.Addr {
	ips := []netip.Addr{reached}
	// The other side of such a connection is this host, or on the same link: there is nothing to
	// choose from.
	if reached.IsLoopback() || reached.IsLinkLocalUnicast() {
		return ips
	}
	own := ownAddrs()
	for _, a := range p.host.Peerstore().Addrs(id) {
		ip, ok := hostOf(a)
		if !ok || isRelayed(a) || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified() ||
			slices.Contains(own, ip) || slices.Contains(ips, ip) {
			continue
		}
		// A host with many virtual interfaces would otherwise make the survey long.
		if ips = append(ips, ip); len(ips) == maxRouteAddrs {
			break
		}
	}
	return ips
}

// byTCP returns the TCP targets of a peer, the fastest first. If there are several targets why has
// their measured rates; otherwise why says whether long packets to the address are lost. byTCP
// measures the addresses if the cache has no route, and leaves out unresponsive targets. The slower
// targets follow the fastest one, in case the dial of the fastest one fails.
func (p *paths) byTCP(ctx context.Context, s network.Conn, theirs *offer) (all []direct.Target, why string) {
	reached, ok := hostOf(s.RemoteMultiaddr())
	if !ok {
		return nil, ""
	}
	ips := p.addrsOf(s.RemotePeer(), reached)
	var at []netip.Addr // parallel to all
	for _, ip := range ips {
		to, ok := theirs.ByTCP(ip)
		// The bound is the segment size that is known to pass on the way to this address.
		if to = p.routes.withBound(to, ip); ok && !p.routes.isSilent(to) {
			all, at = append(all, to), append(at, ip)
		}
	}
	if len(all) == 0 { // all targets are unresponsive: the dial of the first target reports that
		if to, ok := theirs.ByTCP(reached); ok {
			all = append(all, p.routes.withBound(to, reached))
		}
		return all, p.routes.why(reached)
	}
	if len(all) == 1 {
		return all, p.routes.why(at[0])
	}
	key := routeKey(at)
	// Without the cache every pair and every view would measure again.
	found, ok := p.routes.find(key, time.Now())
	if !ok {
		found = fastestOf(direct.Survey(ctx, all, theirs.Ticket), at)
		if !found.ip.IsValid() {
			return all, "" // no address could be measured: the order stays
		}
		p.routes.note(key, found)
	}
	if i := slices.Index(at, found.ip); i > 0 {
		all = slices.Insert(slices.Delete(slices.Clone(all), i, i+1), 0, all[i])
	}
	return all, found.why
}

// routeKey returns the cache key of a host: its addresses, sorted, as the peers of one host may
// list them in different orders.
func routeKey(ips []netip.Addr) string {
	var names []string
	for _, ip := range ips {
		names = append(names, ip.String())
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}
