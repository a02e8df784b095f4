package p2p

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// The functions of this file read and convert addresses. An address of libp2p is a multiaddr, a
// list of components such as /ip4/192.0.2.1/tcp/7000. A relayed address begins with the relay's own
// address and ID, followed by /p2p-circuit:
//
//	/ip4/192.0.2.1/tcp/7000                               TCP
//	/ip6zone/eth0/ip6/fe80::1/tcp/7000                    TCP, link-local
//	/ip4/192.0.2.1/udp/7000/quic-v1                       QUIC
//	/ip4/192.0.2.1/tcp/7000/p2p/RELAY/p2p-circuit         relayed
//
// ipOf and hostOf return the IP address of the peer. They return none for a relayed address,
// because its IP address is the relay's. isRelayed and udpOf return the kind of the path. No
// function fails on an unknown component, because an address from a peer may have any components.

// idOf returns the libp2p form of an ID. It fails for a text that is no peer ID, such as a text
// from another host may be.
func idOf(text string) (peer.ID, error) {
	id, err := peer.Decode(text)
	if err != nil {
		return "", fmt.Errorf("peer ID %q: %w", text, err)
	}
	return id, nil
}

// hostOf returns the IP address of the peer itself in an address, with its zone if there is one. It
// returns false where ipOf returns nil.
func hostOf(a multiaddr.Multiaddr) (netip.Addr, bool) {
	ip, ok := netip.AddrFromSlice(ipOf(a))
	if !ok {
		return ip, false
	}
	if zone, err := a.ValueForProtocol(multiaddr.P_IP6ZONE); err == nil {
		ip = ip.WithZone(zone)
	}
	return ip.Unmap(), true
}

// withoutZone returns a without all zones at its beginning.
func withoutZone(a multiaddr.Multiaddr) multiaddr.Multiaddr {
	for len(a) > 0 && a[0].Code() == multiaddr.P_IP6ZONE {
		a = a[1:]
	}
	return a
}

// withOneZone returns a with one zone instead of two at its beginning.
func withOneZone(a multiaddr.Multiaddr) multiaddr.Multiaddr {
	for len(a) > 1 && a[0].Code() == multiaddr.P_IP6ZONE && a[1].Code() == multiaddr.P_IP6ZONE {
		a = a[1:]
	}
	return a
}

// ipOf returns the IP address of the peer itself in an address. It is nil if there is none, and
// for a relayed address, in which the IP address is the relay's.
func ipOf(a multiaddr.Multiaddr) net.IP {
	if isRelayed(a) {
		return nil
	}
	ip, err := manet.ToIP(withoutZone(a))
	if err != nil {
		return nil
	}
	return ip
}

// isRelayed reports whether an address leads through a relay.
func isRelayed(a multiaddr.Multiaddr) bool {
	_, err := a.ValueForProtocol(multiaddr.P_CIRCUIT)
	return err == nil
}

// relayOf returns the relay in an address; false if there is none.
func relayOf(a multiaddr.Multiaddr) (peer.ID, bool) {
	if !isRelayed(a) {
		return "", false
	}
	by, err := a.ValueForProtocol(multiaddr.P_P2P)
	if err != nil {
		return "", false
	}
	id, err := peer.Decode(by)
	return id, err == nil
}

// quicAddr returns the QUIC multiaddr of a UDP address.
func quicAddr(at netip.AddrPort) (multiaddr.Multiaddr, error) {
	a, err := manet.FromNetAddr(net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, fmt.Errorf("address %v: %w", at, err)
	}
	return a.Encapsulate(multiaddr.StringCast("/quic-v1")), nil
}

// udpOf returns the UDP address in a multiaddr; the zero AddrPort if there is none, or if it is
// relayed.
func udpOf(a multiaddr.Multiaddr) netip.AddrPort {
	if isRelayed(a) {
		return netip.AddrPort{}
	}
	addr, err := manet.ToNetAddr(withoutZone(withoutQUIC(a)))
	udp, ok := addr.(*net.UDPAddr)
	if err != nil || !ok {
		return netip.AddrPort{}
	}
	at := udp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// withoutQUIC returns a multiaddr up to its port.
func withoutQUIC(a multiaddr.Multiaddr) multiaddr.Multiaddr {
	for i, c := range a {
		if c.Code() == multiaddr.P_QUIC_V1 {
			return a[:i]
		}
	}
	return a
}

// ownAddrs returns the addresses of this host's interfaces, without zones; nil if the system does
// not report them. It asks the system each time, as libp2p's own list may be a minute old.
func ownAddrs() []netip.Addr {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil // addrsOf then leaves out no address
	}
	var ips []netip.Addr
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				ips = append(ips, ip.Unmap())
			}
		}
	}
	return ips
}
