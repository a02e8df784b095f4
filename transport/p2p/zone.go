package p2p

import (
	"context"
	"fmt"
	"net"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/transport"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/elrun/elrun/elastic"
)

// Link-local addresses of IPv6 (fe80::/10) are unique on one link only, so each needs a zone: the
// interface of the link. A zone has a meaning on its own host only (RFC 4007). A host that receives
// such an address from another host therefore dials it on each of its own links; the peer that
// answers has to prove its ID.
//
// libp2p refuses to dial link-local addresses, but its check does not look behind a second
// zone. So addresses to dial have their zone twice, as in
// /ip6zone/eth0/ip6zone/eth0/ip6/fe80::1/tcp/7000, and scoped removes one of the two before the
// dial.

// scoped is libp2p's TCP transport that also dials addresses with a zone. It listens and closes as
// the embedded transport does.
type scoped struct{ *tcp.TcpTransport }

// CanDial implements transport.Transport.
func (s scoped) CanDial(a multiaddr.Multiaddr) bool {
	return s.TcpTransport.CanDial(withoutZone(a))
}

// Dial implements transport.Transport.
func (s scoped) Dial(ctx context.Context, a multiaddr.Multiaddr, id peer.ID) (transport.CapableConn, error) {
	return s.TcpTransport.Dial(ctx, withOneZone(a), id)
}

// DialWithUpdates implements transport.DialUpdater.
func (s scoped) DialWithUpdates(ctx context.Context, a multiaddr.Multiaddr, id peer.ID, updates chan<- transport.DialUpdate) (transport.CapableConn, error) {
	return s.TcpTransport.DialWithUpdates(ctx, withOneZone(a), id, updates)
}

// onLinks returns the forms of another host's address that this host can dial: a link-local address
// on each of the zones, with the zone twice, and any other address as it is.
func onLinks(a multiaddr.Multiaddr, zones func() []string) []multiaddr.Multiaddr {
	if !manet.IsIP6LinkLocal(a) {
		return []multiaddr.Multiaddr{a}
	}
	var all []multiaddr.Multiaddr
	for _, name := range zones() {
		zone, err := multiaddr.NewComponent("ip6zone", name)
		if err != nil {
			continue // the name is not valid in a multiaddr
		}
		all = append(all, append(multiaddr.Multiaddr{*zone, *zone}, withoutZone(a)...))
	}
	return all
}

// ownZones returns the names of the interfaces that are up and have link-local IPv6 addresses. It
// returns nil if the system does not report interfaces; then link-local addresses are not dialled.
func ownZones() []string {
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var names []string
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil || i.Flags&net.FlagUp == 0 {
			continue
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.To4() == nil && n.IP.IsLinkLocalUnicast() {
				names = append(names, i.Name)
				break
			}
		}
	}
	return names
}

// contact returns the libp2p forms of a member's ID and of its addresses, as they are dialled
// (onLinks). A peer ID at the end of an address is dropped: the member's ID alone counts, and the
// handshake proves it. It fails if one of the addresses is no multiaddr.
func (c *conns) contact(m elastic.Member) (peer.ID, []multiaddr.Multiaddr, error) {
	id, err := c.gate.decode(m.ID)
	if err != nil {
		return "", nil, err
	}
	var addrs []multiaddr.Multiaddr
	for _, text := range m.Addrs {
		a, err := multiaddr.NewMultiaddr(text)
		if err != nil {
			return "", nil, fmt.Errorf("%s: address %q: %w", m.ID.Short(), text, err)
		}
		// The address may consist of a peer ID only; then nothing is left to dial.
		if a, _ = peer.SplitAddr(a); a != nil {
			addrs = append(addrs, onLinks(a, ownZones)...)
		}
	}
	return id, addrs, nil
}
