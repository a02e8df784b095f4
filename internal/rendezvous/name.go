package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Name is the rendezvous of launchers: a DNS name that resolves to their addresses, and the port on
// which they listen.
type Name struct {
	Host   string
	Port   int
	Server string // DNS server as host:port; "" for the system's resolver
}

// defaultPort is the port of names without one.
const defaultPort = 7473

// ParseName parses dns:NAME or dns:NAME:PORT, with an optional @SERVER or @SERVER:PORT after it.
// SERVER is the IP address of a DNS server in place of the system's; without a port it is asked at
// port 53. The error says which forms are valid.
func ParseName(text string) (Name, error) {
	wrong := fmt.Errorf("%.80q: want dns:NAME or dns:NAME:PORT, followed by @SERVER to ask another DNS server", text)
	rest, ok := strings.CutPrefix(text, "dns:")
	rest, server, other := strings.Cut(rest, "@")
	host, port, hasPort := strings.Cut(rest, ":")
	n := Name{Host: host, Port: defaultPort}
	if hasPort {
		p, err := strconv.ParseUint(port, 10, 16)
		n.Port = int(p)
		ok = ok && err == nil && p > 0
	}
	if !ok || len(host) > 253 || !regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?$`).MatchString(host) {
		return Name{}, wrong
	}
	if !other {
		return n, nil
	}
	// A server without a port uses 53, the port of the DNS.
	if addr, err := netip.ParseAddr(server); err == nil {
		server = netip.AddrPortFrom(addr, 53).String()
	}
	if _, err := netip.ParseAddrPort(server); err != nil {
		return Name{}, wrong
	}
	n.Server = server
	return n, nil
}

// lookup returns the addresses of the name. If there are none, it returns an error.
func (n Name) lookup(ctx context.Context) ([]netip.Addr, error) {
	// The Go resolver calls Dial, so that the lookup can use another server. The resolver of libc
	// could not.
	r := net.Resolver{PreferGo: true}
	if n.Server != "" {
		r.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, n.Server)
		}
	}
	addrs, err := r.LookupNetIP(ctx, "ip", n.Host)
	var e *net.DNSError
	if errors.As(err, &e) {
		err = fmt.Errorf("DNS lookup of %s: %s", n.Host, e.Err)
	}
	// An IPv4 address may come in its IPv6-mapped form; the plain form compares equal everywhere.
	for i, a := range addrs {
		addrs[i] = a.Unmap()
	}
	return addrs, err
}
