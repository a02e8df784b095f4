package p2p

import (
	"context"
	"net"
	"net/netip"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/transport"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// Link-local addresses of IPv6 (fe80::/10) are unique on one link only, so each comes with a
// zone: the interface of the link. A zone has a meaning on one host only (RFC 4007), so
// a host that learns of such an address from another tries it on all its own links; who
// answers has to prove to be the right one.
//
// libp2p dials no link-local addresses. It looks past one zone to tell, so addresses that
// are to be dialled have their zone twice, and scoped takes one away.

// scoped is the TCP transport of libp2p, which also dials addresses with a zone.
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

// withoutZone returns an address without the zones at its beginning.
func withoutZone(a multiaddr.Multiaddr) multiaddr.Multiaddr {
	for len(a) > 0 && a[0].Code() == multiaddr.P_IP6ZONE {
		a = a[1:]
	}
	return a
}

// withOneZone returns an address without the first of two zones.
func withOneZone(a multiaddr.Multiaddr) multiaddr.Multiaddr {
	for len(a) > 1 && a[0].Code() == multiaddr.P_IP6ZONE && a[1].Code() == multiaddr.P_IP6ZONE {
		a = a[1:]
	}
	return a
}

// onLinks returns the forms of another host's address that can be dialled from here: a
// link-local one on each of the zones, any other as it is.
func onLinks(a multiaddr.Multiaddr, zones func() []string) []multiaddr.Multiaddr {
	if !manet.IsIP6LinkLocal(a) {
		return []multiaddr.Multiaddr{a}
	}
	var all []multiaddr.Multiaddr
	for _, name := range zones() {
		zone, err := multiaddr.NewComponent("ip6zone", name)
		if err != nil {
			continue // no name that an address can have
		}
		all = append(all, append(multiaddr.Multiaddr{*zone, *zone}, withoutZone(a)...))
	}
	return all
}

// ownZones returns the names of the interfaces with link-local addresses of IPv6.
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

// hostOf returns the IP address with the zone, if it has one, at which whoever has the
// address is itself; false where placeOf has none.
func hostOf(a multiaddr.Multiaddr) (netip.Addr, bool) {
	ip, ok := netip.AddrFromSlice(placeOf(a))
	if !ok {
		return ip, false
	}
	if zone, err := a.ValueForProtocol(multiaddr.P_IP6ZONE); err == nil {
		ip = ip.WithZone(zone)
	}
	return ip.Unmap(), true
}
