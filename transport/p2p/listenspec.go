package p2p

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/multiformats/go-multiaddr"

	"github.com/elrun/elrun/transport/internal/direct"
)

// LoopbackAddrs returns multiaddrs for Config.ListenAddrs at which only this host can reach this
// process, over IPv4 and IPv6 as far as the host has them.
func LoopbackAddrs() []string { return available("127.0.0.1", "::1") }

// NetworkAddrs returns multiaddrs that stand for all interfaces, over IPv4 and IPv6 as far as the
// host has them. They are for Config.ListenAddrs and Open.
func NetworkAddrs() []string { return available("0.0.0.0", "::") }

// available returns multiaddrs for the two addresses, as far as this process can listen at them.
// If it can listen at neither it returns the first, so that listening there reports the error.
func available(ip4, ip6 string) []string {
	at4, at6 := "/ip4/"+ip4+"/tcp/0", "/ip6/"+ip6+"/tcp/0"
	if !canListen("tcp6", ip6) {
		return []string{at4}
	}
	if !canListen("tcp4", ip4) {
		return []string{at6}
	}
	return []string{at4, at6}
}

// canListen reports whether this process can listen at an address of the host. It tries, as a
// kernel without IPv6 and a container without the address report it in no other common way.
func canListen(network, ip string) bool {
	l, err := net.Listen(network, net.JoinHostPort(ip, "0"))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

// defaultAddrs returns the listen addresses of a Config that has none.
func defaultAddrs(transport string) []string {
	if transport == "quic" {
		return []string{"/ip4/0.0.0.0/udp/0/quic-v1"}
	}
	return []string{"/ip4/0.0.0.0/tcp/0"}
}

// listenSpec is a parsed element of Config.ListenAddrs: a multiaddr and a range of ports. The
// range is zero if the element has a single port.
type listenSpec struct {
	addr  multiaddr.Multiaddr // with the first port of the range
	ports direct.Range
}

// parseListen parses an element of Config.ListenAddrs.
func parseListen(text string) (listenSpec, error) {
	var p listenSpec
	parts := strings.Split(text, "/")
	for i := 1; i < len(parts); i++ {
		first, last, ranged := strings.Cut(parts[i], "-")
		if !ranged || parts[i-1] != "tcp" && parts[i-1] != "udp" {
			continue
		}
		from, err := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		if err != nil || err2 != nil || from == 0 || to < from {
			return p, fmt.Errorf("address %q: want a range of ports as in 7000-7019", text)
		}
		p.ports = direct.Range{First: uint16(from), Last: uint16(to)}
		parts[i] = first
	}
	addr, err := multiaddr.NewMultiaddr(strings.Join(parts, "/"))
	if err != nil {
		return p, fmt.Errorf("address %q: %w", text, err)
	}
	p.addr = addr
	return p, nil
}

// CheckAddr returns nil if text is valid in Config.ListenAddrs.
func CheckAddr(text string) error {
	_, err := parseListen(text)
	return err
}

// withPort returns the address a with its port number, which is first, replaced by port. a itself
// stays as it is.
func withPort(a multiaddr.Multiaddr, first, port uint16) multiaddr.Multiaddr {
	var out multiaddr.Multiaddr
	for _, c := range a {
		code := c.Protocol().Code
		if (code == multiaddr.P_TCP || code == multiaddr.P_UDP) && c.Value() == strconv.Itoa(int(first)) {
			n, err := multiaddr.NewComponent(c.Protocol().Name, strconv.Itoa(int(port)))
			if err != nil {
				continue // no such component: ports have numbers
			}
			c = *n
		}
		out = append(out, c)
	}
	return out
}
