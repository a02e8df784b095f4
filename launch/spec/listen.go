package spec

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/elrun/elrun/transport/p2p"
)

// Values of Network.Listen other than lists of addresses.
const (
	ListenAuto  = "auto"  // loopback, until the job is opened
	ListenLocal = "local" // loopback for good
	ListenAll   = "all"   // all interfaces, from the start
)

// ParseListen returns the multiaddrs of a list of addresses that are separated by commas, or none
// for the words auto, local and all. Each address is a multiaddr, or an IP address with an
// optional port or range of ports: 192.0.2.1, 192.0.2.1:7000-7019, 2001:db8::1,
// [2001:db8::1]:7000-7019.
func ParseListen(list string) ([]string, error) {
	if list == ListenAuto || list == ListenLocal || list == ListenAll {
		return nil, nil
	}
	var out []string
	for text := range strings.SplitSeq(list, ",") {
		addr := text
		if !strings.HasPrefix(text, "/") {
			ip, ports, err := splitListen(text)
			if err != nil {
				return nil, fmt.Errorf("address to listen at %q: want auto, local, all, or addresses as in 192.0.2.1 or [::1]:7000-7019", text)
			}
			// A link-local address is ambiguous without its interface.
			if ip.IsLinkLocalUnicast() && ip.Is6() && ip.Zone() == "" {
				return nil, fmt.Errorf("address to listen at %q: it is valid on one link only; name the interface, as in %s%%eth0", text, ip)
			}
			// Port 0 lets the kernel choose.
			addr = fmt.Sprintf("/ip%d/%s/tcp/%s", ipVersion(ip), ip.WithZone(""), cmp.Or(ports, "0"))
			if ip.Zone() != "" {
				addr = "/ip6zone/" + ip.Zone() + addr
			}
		}
		if err := p2p.CheckAddr(addr); err != nil {
			return nil, fmt.Errorf("address to listen at %q: %w", text, err)
		}
		out = append(out, addr)
	}
	return out, nil
}

// splitListen splits an address into IP address and ports. Without a port, ports is "".
func splitListen(text string) (ip netip.Addr, ports string, err error) {
	if ip, err = netip.ParseAddr(text); err == nil {
		return ip, "", nil
	}
	// An IPv6 address has colons of its own, so a port needs brackets around the address.
	i := strings.LastIndexByte(text, ':')
	if i < 0 || i == len(text)-1 {
		return ip, "", err
	}
	host, ports := text[:i], text[i+1:]
	inner, ok := strings.CutPrefix(host, "[")
	if inner, closed := strings.CutSuffix(inner, "]"); ok && closed {
		host = inner
	} else if strings.Contains(host, ":") {
		return ip, "", err
	}
	ip, err = netip.ParseAddr(host)
	return ip, ports, err
}

// ipVersion returns the IP version of an address, 4 or 6.
func ipVersion(ip netip.Addr) int {
	if ip.Is4() {
		return 4
	}
	return 6
}

// OnlyLoopback reports whether all multiaddrs are loopback addresses.
func OnlyLoopback(addrs []string) bool {
	for _, a := range addrs {
		if !strings.HasPrefix(a, "/ip4/127.") && !strings.HasPrefix(a, "/ip6/::1/") {
			return false
		}
	}
	return true
}

// OpenListen returns the Listen value of peers that join an open job: all interfaces, unless the
// user has chosen other addresses.
func OpenListen(listen string) string {
	if listen == "" || listen == ListenAuto {
		return ListenAll
	}
	return listen
}
