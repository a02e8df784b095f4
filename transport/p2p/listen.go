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

	"github.com/libp2p/go-libp2p/core/crypto"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/mesh"
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

// canListen reports whether this process can listen at an address of the host.
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

// Open makes the host listen at further addresses, in the form of Config.ListenAddrs. After an
// error it may listen at some of them.
func (h *Host) Open(addrs []string) error {
	if !h.begin() {
		return fmt.Errorf("p2p: open: %w", net.ErrClosed)
	}
	defer h.working.Done()
	err := h.listenAt(addrs)
	h.ports.poke()
	if err != nil {
		return fmt.Errorf("p2p: open: %w", err)
	}
	return nil
}

// listenAt makes libp2p and the direct port listen at the same addresses, each at a port of its
// own.
func (h *Host) listenAt(addrs []string) error {
	var ips []netip.Addr // with a direct port already: libp2p may have several addresses on one IP
	for _, text := range addrs {
		p, err := parseListen(text)
		if err != nil {
			return err
		}
		err = h.listenSwarm(p)
		if err == nil && !manet.IsIPLoopback(p.addr) {
			h.reserved.wide.Store(true)
		}
		if ip, ok := hostOf(p.addr); err == nil && h.port != nil && ok && !slices.Contains(ips, ip) {
			ips = append(ips, ip)
			err = h.port.Listen(ip, p.ports)
		}
		if errors.Is(err, syscall.EADDRINUSE) && p.ports.First != 0 {
			return fmt.Errorf("%s has no free port left: each peer takes two, or one with --transport p2p: %w", text, err)
		}
		if err != nil {
			return fmt.Errorf("address %q: %w", text, err)
		}
	}
	return nil
}

// listenSwarm makes libp2p listen at the first free port of p.
func (h *Host) listenSwarm(p listenSpec) error {
	if p.ports.First == 0 {
		return h.swarm.AddListenAddr(p.addr)
	}
	for port := p.ports.First; ; port++ {
		err := h.swarm.AddListenAddr(withPort(p.addr, p.ports.First, port))
		if !errors.Is(err, syscall.EADDRINUSE) || port >= p.ports.Last {
			return err
		}
	}
}

// withPort returns the address a with its port number, which is first, replaced by port.
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

// openPort checks Config.Path and Config.Encrypt, makes the TLS identity and opens the port of
// direct connections. The port listens at its Unix socket only; listenAt adds the addresses.
func (h *Host) openPort(cfg Config, key crypto.PrivKey) error {
	var errs [2]error
	var path byte
	path, errs[0] = code("path", cfg.Path, mesh.Paths())
	h.path = mesh.Path(path)
	h.encrypt, errs[1] = code("encryption", cfg.Encrypt, encryptNames())
	var err error
	if h.identity, err = libp2ptls.NewIdentity(key); err != nil {
		err = fmt.Errorf("make TLS identity: %w", err)
	}
	err = errors.Join(errs[0], errs[1], err)
	if err != nil || h.path == mesh.StreamPath {
		return err
	}
	if h.port, err = direct.Open(direct.Config{Unix: h.path != mesh.DirectPath}); err != nil {
		return err
	}
	return h.listenLocal()
}
