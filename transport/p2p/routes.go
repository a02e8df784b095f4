package p2p

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/multiformats/go-multiaddr"

	"github.com/elrun/elrun/transport/internal/direct"
)

// A host may be reachable at several addresses: two network cards, Wi-Fi beside a cable, IPv6
// beside IPv4. The addresses do not show which one is the fastest, so the side that dials measures
// them (direct.Survey). The result is cached for the host rather than for the peer, as the peers of
// one host have the same addresses. A single address is not measured.
const (
	// routeTime is how long a result is valid, and maxRoutes the number of hosts with cached
	// results.
	routeTime = time.Minute
	maxRoutes = 1024
	// maxRouteAddrs is the number of addresses of a host that are compared.
	maxRouteAddrs = 4
)

// route is the result of a measurement: the fastest of several addresses of a host.
type route struct {
	ip  netip.Addr
	why string    // the rates of all addresses, for messages
	at  time.Time // time of the measurement
}

// routes caches the fastest address of each host, and the addresses to which long packets are lost.
// All methods are safe for concurrent use.
type routes struct {
	mu      sync.Mutex
	known   map[string]route    // by routeKey
	bounded map[netip.Addr]bool // addresses to which long packets are lost
}

// newRoutes returns an empty cache.
func newRoutes() *routes {
	return &routes{known: make(map[string]route), bounded: make(map[netip.Addr]bool)}
}

// bound records that long packets to an address are lost, as behind a tunnel with a wrong MTU.
func (r *routes) bound(ip netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.bounded) < maxRoutes {
		r.bounded[ip] = true
	}
}

// why returns a message if long packets to an address are lost, "" otherwise.
func (r *routes) why(ip netip.Addr) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.bounded[ip] {
		return ""
	}
	return fmt.Sprintf("long packets to %s are lost (its MTU, or that of a tunnel, is too large): segments of %d bytes", ip, safeMSS)
}

// withBound returns a target at an address, with a maximum segment size (MSS) of safeMSS bytes if
// long packets to it are lost.
func (r *routes) withBound(to direct.Target, ip netip.Addr) direct.Target {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bounded[ip] {
		to.MSS = safeMSS
	}
	return to
}

// routeKey returns the cache key of a host: its addresses, sorted.
func routeKey(ips []netip.Addr) string {
	var names []string
	for _, ip := range ips {
		names = append(names, ip.String())
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// find returns the cached route of a host; false if there is none or it is older than routeTime.
func (r *routes) find(key string, now time.Time) (route, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, ok := r.known[key]
	return found, ok && now.Sub(found.at) < routeTime
}

// note caches a route, and removes those that have expired.
func (r *routes) note(key string, found route) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.known, func(_ string, old route) bool { return found.at.Sub(old.at) >= routeTime })
	if _, known := r.known[key]; known || len(r.known) < maxRoutes {
		r.known[key] = found
	}
}

// forget empties the cache after a change of the network, so that the next dial to any host
// measures again.
func (r *routes) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.known)
}

// addrsOf returns the addresses at which direct connections with a peer may be dialled, at most
// maxRouteAddrs: first reached, the one of libp2p's connection, then others that the peer has
// announced. It leaves out loopback and link-local addresses, and those of this host.
func (h *Host) addrsOf(id peer.ID, reached netip.Addr) []netip.Addr {
	ips := []netip.Addr{reached}
	if reached.IsLoopback() || reached.IsLinkLocalUnicast() {
		return ips
	}
	own := ownAddrs()
	for _, a := range h.host.Peerstore().Addrs(id) {
		ip, ok := hostOf(a)
		if !ok || isRelayed(a) || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified() ||
			slices.Contains(own, ip) || slices.Contains(ips, ip) {
			continue
		}
		if ips = append(ips, ip); len(ips) == maxRouteAddrs {
			break
		}
	}
	return ips
}

// byTCP returns the TCP targets of a peer, the fastest first. Where there is a choice why has the
// rates of all. It measures the addresses if the cache has no route, and leaves out unresponsive
// targets.
func (h *Host) byTCP(ctx context.Context, s network.Conn, theirs *offer) (all []direct.Target, why string) {
	reached, ok := hostOf(s.RemoteMultiaddr())
	if !ok {
		return nil, ""
	}
	ips := h.addrsOf(s.RemotePeer(), reached)
	var at []netip.Addr // parallel to all
	for _, ip := range ips {
		to, ok := theirs.ByTCP(ip)
		if to = h.routes.withBound(to, ip); ok && !h.isSilent(to) {
			all, at = append(all, to), append(at, ip)
		}
	}
	if len(all) == 0 { // all are unresponsive: the dial of the first one reports that
		if to, ok := theirs.ByTCP(reached); ok {
			all = append(all, h.routes.withBound(to, reached))
		}
		return all, h.routes.why(reached)
	}
	if len(all) == 1 {
		return all, h.routes.why(at[0])
	}
	key := routeKey(at)
	found, ok := h.routes.find(key, time.Now())
	if !ok {
		found = fastestOf(direct.Survey(ctx, all, theirs.Ticket), at)
		if !found.ip.IsValid() {
			return all, "" // no address could be measured: the order stays
		}
		h.routes.note(key, found)
	}
	if i := slices.Index(at, found.ip); i > 0 {
		all = slices.Insert(slices.Delete(slices.Clone(all), i, i+1), 0, all[i])
	}
	return all, found.why
}

// fastestOf returns the route of the fastest address in a survey; at is parallel to all. The route
// is zero if no address could be measured.
func fastestOf(all []direct.Surveyed, at []netip.Addr) route {
	best := direct.Fastest(all)
	if best < 0 {
		return route{}
	}
	return route{ip: at[best], why: formatRates(all, at, best), at: time.Now()}
}

// formatRates formats the measured rates for a message, the chosen address first.
func formatRates(all []direct.Surveyed, at []netip.Addr, best int) string {
	order := []int{best}
	for i := range all {
		if i != best {
			order = append(order, i)
		}
	}
	var parts []string
	for _, i := range order {
		rate := "no answer"
		if all[i].Err == nil {
			rate = fmt.Sprintf("%.3g Mbit/s", all[i].Speed.Rate*8/1e6)
		}
		parts = append(parts, fmt.Sprintf("%s: %s", at[i], rate))
	}
	return "fastest of " + fmt.Sprint(len(all)) + " addresses (" + strings.Join(parts, ", ") + ")"
}

// dialer returns the dialer for libp2p's own TCP connections, with a shorter MSS where long packets
// are lost.
func (r *routes) dialer(to multiaddr.Multiaddr) (tcp.ContextDialer, error) {
	ip, ok := hostOf(to)
	if !ok {
		return &net.Dialer{}, nil
	}
	return r.withBound(direct.Target{}, ip).Dialer(), nil
}
