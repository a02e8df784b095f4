package p2p

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

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
	// silentTime is how long an unresponsive target is not dialled again.
	silentTime = time.Minute
	// safeMSS is the segment size in bytes that fits the packets of 1,280 bytes that every IPv6
	// path carries (RFC 8200), with room for the headers of a tunnel.
	safeMSS = 1160
)

// route is the result of a measurement: the fastest of several addresses of a host.
type route struct {
	ip  netip.Addr
	why string    // the rates of all addresses, for messages
	at  time.Time // time of the measurement
}

// routes has the measurements and observations of addresses: the fastest address of each host, the
// targets that do not answer, and the addresses to which long packets are lost. All methods are
// safe for concurrent use.
type routes struct {
	// mu guards the fields below.
	mu      sync.Mutex
	known   map[string]route            // by routeKey
	silent  map[direct.Target]time.Time // unresponsive targets, and the time of the last attempt
	bounded map[netip.Addr]bool         // addresses to which long packets are lost
}

// newRoutes returns an empty cache.
func newRoutes() *routes {
	return &routes{known: make(map[string]route), silent: make(map[direct.Target]time.Time), bounded: make(map[netip.Addr]bool)}
}

// bound records that long packets to an address are lost, as behind a tunnel with a wrong MTU. The
// mark stays for the life of the process: a smaller segment costs little, and a tunnel keeps its
// MTU. At most maxRoutes addresses are marked.
func (r *routes) bound(ip netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.bounded) < maxRoutes {
		r.bounded[ip] = true
	}
}

// why returns a message if long packets to an address may be lost, "" otherwise. A network that loses
// many packets of any length looks the same.
func (r *routes) why(ip netip.Addr) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.bounded[ip] {
		return ""
	}
	return fmt.Sprintf("packets to %s were lost while short ones passed, so TCP segments have %d bytes: if the network loses only long ones, lower the MTU of the interface, or of the tunnel on the way", ip, safeMSS)
}

// withBound returns a target at an address, with a maximum segment size (MSS) of safeMSS bytes if
// long packets to the address are lost.
func (r *routes) withBound(to direct.Target, ip netip.Addr) direct.Target {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bounded[ip] {
		to.MSS = safeMSS
	}
	return to
}

// find returns the cached route of a host; false if there is none or it is older than routeTime.
// now is a parameter for tests.
func (r *routes) find(key string, now time.Time) (route, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, ok := r.known[key]
	return found, ok && now.Sub(found.at) < routeTime
}

// note caches a route, and removes the expired routes.
func (r *routes) note(key string, found route) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.known, func(_ string, old route) bool { return found.at.Sub(old.at) >= routeTime })
	if _, known := r.known[key]; known || len(r.known) < maxRoutes {
		r.known[key] = found
	}
}

// forget drops the measured routes, so that the next dial to any host measures again.
func (r *routes) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.known)
}

// reset drops the measured routes and the marks of markSilent, after a change of the network.
func (r *routes) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.known)
	clear(r.silent)
}

// markSilent marks a target as unresponsive for silentTime, and removes old marks. Without the mark
// each later view would wait for the same timeout again.
func (r *routes) markSilent(to direct.Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.silent, func(_ direct.Target, since time.Time) bool { return time.Since(since) > silentTime })
	r.silent[to] = time.Now()
}

// isSilent reports whether a target was marked as unresponsive in the last silentTime.
func (r *routes) isSilent(to direct.Target) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, ok := r.silent[to]
	return ok && time.Since(since) <= silentTime
}

// fastestOf returns the route of the fastest address in a survey; at is parallel to all. The route
// is zero if no address could be measured.
func fastestOf(all []direct.Surveyed, at []netip.Addr) route {
	best := direct.Fastest(all)
	if best < 0 {
		return route{} // no address was measured; the zero route has no valid IP address
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
