package p2p

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/elrun/elrun/transport/internal/direct"
)

// listener makes libp2p and the direct port listen at the same addresses, and returns the addresses
// under which others may reach the host. All methods are safe for concurrent use.
//
// The host listens at two ports of each IP address: one of libp2p and one for direct connections.
// Other hosts receive the address of the first as a multiaddr, and the address of the second in
// each offer. A router may map both ports (portMap); other hosts receive the external addresses in
// the same two ways. The addresses are not cached: each call reads them from libp2p, from the
// system and from portMap, so they are right after any change.
type listener struct {
	*conns

	port  *direct.Port // nil if only libp2p is wanted
	ports *portMap     // mappings at the router
	// relays may be nil. listenAt calls its method widen once the host listens on a network.
	relays *relays
}

// close ends the direct connections, and releases their ports.
func (l *listener) close() error {
	if l.port == nil {
		return nil
	}
	return l.port.Close()
}

// listenAt listens at addresses in the form of Config.ListenAddrs, each at one port for libp2p and
// one for direct connections. After an error it may listen at some of them.
func (l *listener) listenAt(addrs []string) error {
	// An error ends the loop; the host goes on listening at the addresses before.
	var ips []netip.Addr // have a direct port: addrs may have several elements with one IP
	for _, text := range addrs {
		p, err := parseListen(text)
		if err != nil {
			return err
		}
		err = l.listenSwarm(p)
		// A host that listens only on loopback needs no relays.
		if err == nil && !manet.IsIPLoopback(p.addr) {
			l.relays.widen()
		}
		if ip, ok := hostOf(p.addr); err == nil && l.port != nil && ok && !slices.Contains(ips, ip) {
			ips = append(ips, ip)
			err = l.port.Listen(ip, p.ports)
		}
		if errors.Is(err, syscall.EADDRINUSE) && p.ports.First != 0 {
			return fmt.Errorf("%s has no free port left: each peer needs two ports, or one with --transport p2p; give a larger range: %w", text, err)
		}
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("address %q: %w; give a range with two ports for each peer, as in 7000-7019", text, syscall.EADDRINUSE)
		}
		if err != nil {
			return fmt.Errorf("address %q: %w", text, err)
		}
	}
	return nil
}

// listenSwarm makes libp2p listen at the first free port of p. The error of the last port tried is
// returned: syscall.EADDRINUSE if the whole range is taken.
func (l *listener) listenSwarm(p listenSpec) error {
	if p.ports.First == 0 {
		return l.swarm.AddListenAddr(p.addr)
	}
	// The ports are tried in order, so the peers of one host fill the range from its beginning.
	for port := p.ports.First; ; port++ {
		err := l.swarm.AddListenAddr(withPort(p.addr, p.ports.First, port))
		if !errors.Is(err, syscall.EADDRINUSE) || port >= p.ports.Last {
			return err
		}
	}
}

// addrs returns the multiaddrs under which others may reach the host: its own, then the addresses
// at its router, then the loopback addresses.
func (l *listener) addrs() []string {
	var near, far []string
	for _, a := range l.listenAddrs() {
		if manet.IsIPLoopback(a) {
			near = append(near, a.String())
		} else {
			far = append(far, a.String())
		}
	}
	// Other hosts may cut the list to a limit, so the addresses that other hosts can reach come
	// first.
	for _, a := range l.outerAddrs() {
		far = append(far, a.String())
	}
	return slices.Concat(far, near)
}

// listenAddrs returns the addresses at which the host itself listens, one for each interface.
func (l *listener) listenAddrs() []multiaddr.Multiaddr {
	// libp2p's list of interfaces may be a minute old.
	all := l.swarm.ListenAddresses()
	if own, err := manet.InterfaceMultiaddrs(); err == nil {
		if resolved, err := manet.ResolveUnspecifiedAddresses(all, own); err == nil {
			all = resolved
		}
	}
	return multiaddr.FilterAddrs(all, isAdvertised)
}

// farAddrs returns the addresses of this host that are not on loopback.
func (l *listener) farAddrs() []multiaddr.Multiaddr {
	return multiaddr.FilterAddrs(l.listenAddrs(), func(a multiaddr.Multiaddr) bool { return !manet.IsIPLoopback(a) })
}

// mappable returns the ports at which this host listens on the network, over IPv4. Only IPv4
// routers translate addresses, and loopback needs no router.
func (l *listener) mappable() []uint16 {
	var at []netip.AddrPort
	for _, a := range l.swarm.ListenAddresses() {
		at = append(at, listening(a))
	}
	if l.port != nil {
		at = append(at, l.port.Offer(direct.Ticket{}).Addrs...)
	}
	var all []uint16
	for _, at := range at {
		if isMappable(at) && !slices.Contains(all, at.Port()) {
			all = append(all, at.Port())
		}
	}
	return all
}

// listening returns the address of a multiaddr at which libp2p listens, which may be the unspecified
// address; the zero AddrPort if the multiaddr may not be advertised.
func listening(a multiaddr.Multiaddr) (at netip.AddrPort) {
	n, err := manet.ToNetAddr(firstTwo(a))
	if tcp, ok := n.(*net.TCPAddr); err == nil && ok && isAdvertised(a) {
		at = tcp.AddrPort()
	}
	return at
}

// outerAddrs returns the multiaddrs of libp2p at the router's external address. Each is a listen
// address with its first two components, IP address and port, replaced.
func (l *listener) outerAddrs() []multiaddr.Multiaddr {
	var out []multiaddr.Multiaddr
	for _, a := range l.swarm.ListenAddresses() {
		to, ok := l.ports.outer(listening(a))
		if !ok {
			continue
		}
		first, err := multiaddr.NewMultiaddr(fmt.Sprintf("/ip4/%s/tcp/%d", to.Addr().Unmap(), to.Port()))
		if err == nil {
			out = append(out, append(first, a[2:]...))
		}
	}
	return out
}

// outerPorts returns the external addresses of the direct port: one for each of addrs that is
// mapped.
func (l *listener) outerPorts(addrs []netip.AddrPort) []netip.AddrPort {
	var out []netip.AddrPort
	for _, at := range addrs {
		if to, ok := l.ports.outer(at); ok {
			out = append(out, netip.AddrPortFrom(to.Addr().Unmap(), to.Port()))
		}
	}
	return out
}

// LoopbackAddrs returns multiaddrs for Config.ListenAddrs at which only this host can reach this
// process, over IPv4 and IPv6 as far as the host has them.
func LoopbackAddrs() []string { return available("127.0.0.1", "::1") }

// NetworkAddrs returns multiaddrs for Config.ListenAddrs and Open that mean all interfaces, over
// IPv4 and IPv6 as far as the host has them.
func NetworkAddrs() []string { return available("0.0.0.0", "::") }

// available returns multiaddrs for the two addresses, as far as this process can listen at them: a
// host may lack IPv6, or, rarely, IPv4. If the process can listen at neither, available returns the
// first, so that a later call to listen reports the error.
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

// canListen reports whether this process can listen at an address of the host. It opens a listening
// socket, because kernels without IPv6 and containers without the address have no other common way
// to report the lack.
func canListen(network, ip string) bool {
	l, err := net.Listen(network, net.JoinHostPort(ip, "0"))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

// listenSpec is a parsed element of Config.ListenAddrs: a multiaddr and a range of ports, which is
// for hosts behind a firewall that lets some ports pass. The range is zero if the element has a
// single port.
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
		if !ranged || parts[i-1] != "tcp" {
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

// CheckAddr returns nil if text is valid in Config.ListenAddrs: a multiaddr, in which a TCP
// port may be a range. It does not check whether this host has the address.
func CheckAddr(text string) error {
	_, err := parseListen(text)
	return err
}

// withPort returns a copy of the address a in which the port number first is replaced by port.
func withPort(a multiaddr.Multiaddr, first, port uint16) multiaddr.Multiaddr {
	var out multiaddr.Multiaddr
	for _, c := range a {
		if c.Protocol().Code == multiaddr.P_TCP && c.Value() == strconv.Itoa(int(first)) {
			n, err := multiaddr.NewComponent(c.Protocol().Name, strconv.Itoa(int(port)))
			if err != nil {
				continue // does not happen: every port number is valid
			}
			c = *n
		}
		out = append(out, c)
	}
	return out
}

// firstTwo returns the components of a multiaddr for the IP address and the port.
func firstTwo(a multiaddr.Multiaddr) multiaddr.Multiaddr { return a[:min(len(a), 2)] }
