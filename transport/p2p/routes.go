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

// A host may have several addresses at which another one reaches it: two network cards, Wi-Fi
// beside a cable, IPv6 beside IPv4. Which of them is the fastest cannot be told from the
// addresses, so the side that dials measures them (direct.Survey) and remembers the result for
// the host: its peers on the same host have the same addresses. One address needs no measurement.
const (
	// routeTime is how long a result counts without a new measurement, and maxRoutes for how many
	// hosts results are kept.
	routeTime = time.Minute
	maxRoutes = 1024
	// maxRouteAddrs is how many addresses of a host are compared.
	maxRouteAddrs = 4
)

// route is the fastest of several addresses of a host.
type route struct {
	ip  netip.Addr
	why string // for people: what all of them carry
	at  time.Time
}

// routes remembers, by the addresses of a host, which of them is the fastest.
type routes struct {
	mu      sync.Mutex
	known   map[string]route
	bounded map[netip.Addr]bool // long packets to these are lost
}

// newRoutes returns routes of which none is known.
func newRoutes() *routes {
	return &routes{known: make(map[string]route), bounded: make(map[netip.Addr]bool)}
}

// bound notes that long packets to an address are lost.
func (r *routes) bound(ip netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.bounded) < maxRoutes {
		r.bounded[ip] = true
	}
}

// why says that long packets to an address are lost; "" if they are not.
func (r *routes) why(ip netip.Addr) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.bounded[ip] {
		return ""
	}
	return fmt.Sprintf("long packets to %s are lost (its MTU, or that of a tunnel, is too large): segments of %d bytes", ip, safeMSS)
}

// withBound returns a target at an address, with shorter segments where long ones are lost.
func (r *routes) withBound(to direct.Target, ip netip.Addr) direct.Target {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bounded[ip] {
		to.MSS = safeMSS
	}
	return to
}

// routeKey names a host by its addresses.
func routeKey(ips []netip.Addr) string {
	var names []string
	for _, ip := range ips {
		names = append(names, ip.String())
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// find returns the route to a host, unless it is older than routeTime.
func (r *routes) find(key string, now time.Time) (route, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, ok := r.known[key]
	return found, ok && now.Sub(found.at) < routeTime
}

// note remembers a route. Those that count no more make room.
func (r *routes) note(key string, found route) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.known, func(_ string, old route) bool { return found.at.Sub(old.at) >= routeTime })
	if _, known := r.known[key]; known || len(r.known) < maxRoutes {
		r.known[key] = found
	}
}

// forget makes the next dial to any host measure again: the network has changed.
func (r *routes) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.known)
}

// addrsOf lists the addresses at which a peer's connections of its own may be dialled: first
// the one that libp2p has reached, then others that it told of, up to maxRouteAddrs. Those of
// loopback, of one link and of this host itself are left out.
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

// ownAddrs returns the addresses of this host's interfaces.
func ownAddrs() []netip.Addr {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil // nothing is left out
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

// byTCP lists where a connection of its own with a peer may be dialled, the fastest first, and
// says how fast the others are where there is a choice.
func (h *Host) byTCP(ctx context.Context, s network.Conn, theirs *offer) (all []direct.Target, why string) {
	reached, ok := hostOf(s.RemoteMultiaddr())
	if !ok {
		return nil, ""
	}
	ips := h.addrsOf(s.RemotePeer(), reached)
	var at []netip.Addr // by target
	for _, ip := range ips {
		to, ok := theirs.ByTCP(ip)
		if to = h.routes.withBound(to, ip); ok && !h.isClosed(to) {
			all, at = append(all, to), append(at, ip)
		}
	}
	if len(all) == 0 { // all were silent a moment ago, as is said of the first
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
			return all, "" // none could be measured: in their order
		}
		h.routes.note(key, found)
	}
	if i := slices.Index(at, found.ip); i > 0 {
		all = slices.Insert(slices.Delete(slices.Clone(all), i, i+1), 0, all[i])
	}
	return all, found.why
}

// fastestOf returns the route that a survey of the given addresses shows, the zero one if none
// could be measured.
func fastestOf(all []direct.Surveyed, at []netip.Addr) route {
	best := direct.Fastest(all)
	if best < 0 {
		return route{}
	}
	return route{ip: at[best], why: compare(all, at, best), at: time.Now()}
}

// compare says how fast addresses are, the chosen one first.
func compare(all []direct.Surveyed, at []netip.Addr, best int) string {
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

// dialer makes libp2p's own connections with short segments where long ones are lost.
func (r *routes) dialer(to multiaddr.Multiaddr) (tcp.ContextDialer, error) {
	ip, ok := hostOf(to)
	if !ok {
		return &net.Dialer{}, nil
	}
	return r.withBound(direct.Target{}, ip).Dialer(), nil
}
