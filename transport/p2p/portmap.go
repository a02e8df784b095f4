package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/elrun/elrun/transport/internal/direct"
)

// A router may forward ports of its own to a host behind it, if the host asks by NAT-PMP (RFC 6886)
// or UPnP IGD. Others then connect to the router's address as if the host were there. Each IPv4
// port at which this host listens on the network is mapped. The gateway renews the mappings;
// portMap keeps them, and members are told of changes.

var (
	// errNoGateway means that the search has found no router.
	errNoGateway = errors.New("no router answers by NAT-PMP or UPnP")
	// errUnmapped means that a router was found, but has refused a mapping or has not granted it
	// yet.
	errUnmapped = errors.New("the router maps no ports")
)

const (
	// gatewayTime is how long the search for a router may take; UPnP routers answer late.
	gatewayTime = 10 * time.Second
	// gatewayFirst is the pause after the first search without a result: a router that has just been
	// switched on answers a little later. Each further one doubles the pause, up to gatewayAgain.
	gatewayFirst = 2 * time.Second
	gatewayAgain = time.Minute
	// mappedEvery is the period at which the mappings are checked and renewed.
	mappedEvery = 5 * time.Second
	// unmapTime is how long removing the mappings may take. The client cannot be interrupted while
	// it waits for a router that does not answer.
	unmapTime = time.Second
)

// gateway is a router that maps ports: pmpGateway, or libp2p's nat.NAT for UPnP.
type gateway interface {
	// AddMapping asks for a mapping, and returns when the router has answered. It is called
	// repeatedly for the same ports.
	AddMapping(ctx context.Context, protocol string, port int) error
	// GetMapping returns the external address of a port; false if the router has granted none.
	GetMapping(protocol string, port int) (netip.AddrPort, bool)
	io.Closer
}

// innerPort is a port at which this host listens, before any mapping.
type innerPort struct {
	protocol string // tcp or udp
	port     uint16
}

// portMap keeps the router's mappings. All methods are safe for concurrent use.
type portMap struct {
	find func(context.Context) (gateway, error)
	wake chan struct{} // capacity 1: the host listens at other ports

	mu      sync.Mutex
	granted map[innerPort]netip.AddrPort // external address by port; zero if the router has refused
	asking  bool                         // MapPorts runs, and has not failed to find a router
	changed chan struct{}                // closed and replaced when one of these changes
}

// newPortMap returns an empty portMap. A nil find means discoverGateway.
func newPortMap(find func(context.Context) (gateway, error)) *portMap {
	if find == nil {
		find = discoverGateway
	}
	return &portMap{find: find, wake: make(chan struct{}, 1), changed: make(chan struct{})}
}

// set records the mappings, and reports whether they differ from those before.
func (p *portMap) set(granted map[innerPort]netip.AddrPort, asking bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	is := !maps.Equal(p.granted, granted)
	p.granted, p.asking = granted, asking
	close(p.changed)
	p.changed = make(chan struct{})
	return is
}

// current returns the mappings, which the caller must not change, and the channel that is closed when
// they change.
func (p *portMap) current() (granted map[innerPort]netip.AddrPort, asking bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.granted, p.asking, p.changed
}

// poke makes MapPorts check the ports now.
func (p *portMap) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// outer returns the external address of an address of this host; false if none is mapped.
func (p *portMap) outer(protocol string, at netip.AddrPort) (netip.AddrPort, bool) {
	granted, _, _ := p.current()
	to := granted[innerPort{protocol, at.Port()}]
	return to, to.IsValid() && isMappable(at)
}

// isMappable reports whether a router can forward to an address: it is IPv4 and not loopback.
func isMappable(at netip.AddrPort) bool {
	return at.Addr().Unmap().Is4() && !at.Addr().IsLoopback() && at.Port() != 0
}

// MapPorts asks this host's router to forward a port to each port at which the host listens on the
// network, now or after Open. It keeps the mappings until ctx ends or the host closes. The external
// addresses are then among Addrs, and members are told of them. told is called with the result, nil or
// an error of one line, whenever the result has changed.
func (h *Host) MapPorts(ctx context.Context, told func(error)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.life, cancel)()
	defer h.ports.set(nil, false)
	h.ports.set(nil, true)
	last := errors.New("nothing yet")
	tell := func(err error) {
		if ctx.Err() == nil && !errors.Is(err, last) {
			told(err)
			last = err
		}
	}
	for pause := gatewayFirst; ctx.Err() == nil; {
		within, done := context.WithTimeout(ctx, gatewayTime)
		g, err := h.ports.find(within)
		done()
		if err == nil {
			h.keepMapped(ctx, g, tell)
			closeWithin(g, unmapTime)
			pause = gatewayFirst
			continue
		}
		h.ports.set(nil, false)
		tell(errNoGateway)
		waitFor(ctx, pause, nil)
		pause = min(2*pause, gatewayAgain)
	}
}

// keepMapped renews the mappings until ctx ends, or until some have been missing for gatewayAgain:
// then the router may be another one.
func (h *Host) keepMapped(ctx context.Context, g gateway, tell func(error)) {
	for whole := time.Now(); ctx.Err() == nil && time.Since(whole) < gatewayAgain; {
		granted, lacks := make(map[innerPort]netip.AddrPort), false
		for _, p := range h.mappable() {
			err := g.AddMapping(ctx, p.protocol, int(p.port))
			at, ok := g.GetMapping(p.protocol, int(p.port))
			if granted[p] = at; !ok {
				granted[p] = netip.AddrPort{}
			}
			lacks = lacks || err != nil || !ok
		}
		fresh := h.ports.set(granted, true)
		if lacks {
			tell(errUnmapped)
		} else if whole = time.Now(); len(granted) > 0 {
			tell(nil)
		}
		if fresh {
			h.announceAddrs()
		}
		waitFor(ctx, mappedEvery, h.ports.wake)
	}
}

// closeWithin closes c, and returns after d at the latest; the call of Close may go on.
func closeWithin(c io.Closer, d time.Duration) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = c.Close()
	}()
	waitFor(context.Background(), d, closed)
}

// waitFor waits for d, for wake, or for the end of ctx, whichever is first.
func waitFor(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}

// Mapped waits until the router has answered for all ports at which this host listens now, or until
// ctx ends. It returns at once if MapPorts does not run or finds no router.
func (h *Host) Mapped(ctx context.Context) {
	for {
		granted, asking, changed := h.ports.current()
		lacks := func(p innerPort) bool { _, asked := granted[p]; return !asked }
		if !asking || !slices.ContainsFunc(h.mappable(), lacks) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// mappable returns the ports at which this host listens on the network, over IPv4.
func (h *Host) mappable() []innerPort {
	var all []innerPort
	add := func(protocol string, at netip.AddrPort) {
		if p := (innerPort{protocol, at.Port()}); isMappable(at) && !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	for _, a := range h.swarm.ListenAddresses() {
		if protocol, at, ok := h.listening(a); ok {
			add(protocol, at)
		}
	}
	if h.port != nil {
		for _, door := range h.port.Offer(direct.Ticket{}).Doors {
			add("tcp", door)
		}
	}
	return all
}

// listening returns the protocol, "tcp" or "udp", and the address of a multiaddr at which libp2p
// listens. It is false for addresses that may not be advertised.
func (h *Host) listening(a multiaddr.Multiaddr) (protocol string, at netip.AddrPort, ok bool) {
	if !h.isAdvertised(a) {
		return "", at, false
	}
	n, err := manet.ToNetAddr(firstTwo(a))
	if err != nil {
		return "", at, false
	}
	at, err = netip.ParseAddrPort(n.String())
	return n.Network()[:len("tcp")], at, err == nil // without the 4 of tcp4
}

// mapped returns the multiaddrs of libp2p at the router's external address.
func (h *Host) mapped() []multiaddr.Multiaddr {
	var out []multiaddr.Multiaddr
	for _, a := range h.swarm.ListenAddresses() {
		protocol, at, ok := h.listening(a)
		if !ok {
			continue
		}
		to, ok := h.ports.outer(protocol, at)
		if !ok {
			continue
		}
		first, err := multiaddr.NewMultiaddr(fmt.Sprintf("/ip4/%s/%s/%d", to.Addr().Unmap(), protocol, to.Port()))
		if err == nil {
			out = append(out, append(first, a[2:]...))
		}
	}
	return out
}

// mappedDoors returns the external addresses of the direct port: one for each of doors that is mapped.
func (h *Host) mappedDoors(doors []netip.AddrPort) []netip.AddrPort {
	var out []netip.AddrPort
	for _, door := range doors {
		if to, ok := h.ports.outer("tcp", door); ok {
			out = append(out, netip.AddrPortFrom(to.Addr().Unmap(), to.Port()))
		}
	}
	return out
}
