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

// A router may pass on what comes to ports of its own, if a host behind it asks by NAT-PMP or UPnP
// (RFC 6886, UPnP IGD): then others connect to the router's address as if the host were there. Each
// port at which this host listens on the network gets one, of IPv4. The gateway asks again before
// the router forgets; here is kept which ports there are, and others are told of them.

var (
	errNoGateway = errors.New("no router answers by NAT-PMP or UPnP")
	errUnmapped  = errors.New("the router maps no ports")
)

const (
	// gatewayTime is how long the router may take to be found: those of UPnP answer late.
	gatewayTime = 10 * time.Second
	// gatewayAgain is after how long it is looked for again.
	gatewayAgain = time.Minute
	// mappedEvery is the time between two looks at what the router grants now.
	mappedEvery = 5 * time.Second
	// unmapTime is how long it may take to take the ports back. The client cannot be
	// interrupted while it waits for a router that does not answer.
	unmapTime = time.Second
)

// gateway is a router that maps ports: pmpGateway, or libp2p's nat.NAT for UPnP.
type gateway interface {
	// AddMapping asks for a port, and returns when the router has answered. It is called again and
	// again for the same ports.
	AddMapping(ctx context.Context, protocol string, port int) error
	// GetMapping returns where others reach a port, if the router has granted one.
	GetMapping(protocol string, port int) (netip.AddrPort, bool)
	io.Closer
}

// innerPort is a port at which this host listens.
type innerPort struct {
	protocol string // tcp or udp
	port     uint16
}

// portMap is what the router passes on. All methods are safe for concurrent use.
type portMap struct {
	find func(context.Context) (gateway, error)
	wake chan struct{} // of one element: there are other ports

	mu      sync.Mutex
	granted map[innerPort]netip.AddrPort // by port that was asked for; zero if the router grants none
	asking  bool                         // MapPorts runs and the router was not found to be absent
	changed chan struct{}                // closed, and made anew, when one of these changes
}

func newPortMap(find func(context.Context) (gateway, error)) *portMap {
	if find == nil {
		find = discoverGateway
	}
	return &portMap{find: find, wake: make(chan struct{}, 1), changed: make(chan struct{})}
}

// set notes what the router grants now, and reports whether that is new.
func (p *portMap) set(granted map[innerPort]netip.AddrPort, asking bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	is := !maps.Equal(p.granted, granted)
	p.granted, p.asking = granted, asking
	close(p.changed)
	p.changed = make(chan struct{})
	return is
}

// now returns what the router grants, which is not to be changed.
func (p *portMap) now() (granted map[innerPort]netip.AddrPort, asking bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.granted, p.asking, p.changed
}

// poke makes MapPorts look at the ports again.
func (p *portMap) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// outer returns where others reach an IPv4 address of this host by way of the router.
func (p *portMap) outer(protocol string, at netip.AddrPort) (netip.AddrPort, bool) {
	granted, _, _ := p.now()
	to := granted[innerPort{protocol, at.Port()}]
	return to, to.IsValid() && isMappable(at)
}

// isMappable reports whether a router can pass on what comes to an address.
func isMappable(at netip.AddrPort) bool {
	return at.Addr().Unmap().Is4() && !at.Addr().IsLoopback() && at.Port() != 0
}

// MapPorts asks the router of this host to pass on what comes from elsewhere to the ports at
// which this host listens on the network, those of Open included, until ctx ends or the host
// closes. The router's address then counts among Addrs, and members are told. told is called with
// what has come of it, nil or an error of one line, whenever that is another than before.
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
	for ctx.Err() == nil {
		within, done := context.WithTimeout(ctx, gatewayTime)
		g, err := h.ports.find(within)
		done()
		if err == nil {
			h.keepMapped(ctx, g, tell)
			closeWithin(g, unmapTime)
			continue
		}
		h.ports.set(nil, false)
		tell(errNoGateway)
		waitFor(ctx, gatewayAgain, nil)
	}
}

// keepMapped has the router map the ports until ctx ends, or some have lacked for so long that it
// may be another router by now.
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
			h.tellAddrs()
		}
		waitFor(ctx, mappedEvery, h.ports.wake)
	}
}

// closeWithin closes something that may take longer than anybody waits for.
func closeWithin(c io.Closer, d time.Duration) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = c.Close()
	}()
	waitFor(context.Background(), d, closed)
}

// waitFor waits for a time, for wake, or for the end of ctx.
func waitFor(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}

// Mapped waits until the router, if MapPorts asks one, has answered for all ports at which this
// host listens now, or until ctx ends.
func (h *Host) Mapped(ctx context.Context) {
	for {
		granted, asking, changed := h.ports.now()
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

// mappable returns the ports at which this host listens on the network.
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

// listening returns protocol, address and port of an address at which libp2p listens.
func (h *Host) listening(a multiaddr.Multiaddr) (protocol string, at netip.AddrPort, ok bool) {
	if !h.isPlace(a) {
		return "", at, false
	}
	n, err := manet.ToNetAddr(firstTwo(a))
	if err != nil {
		return "", at, false
	}
	at, err = netip.ParseAddrPort(n.String())
	return n.Network()[:len("tcp")], at, err == nil // tcp4 is tcp
}

// firstTwo returns the address and the port of a multiaddr.
func firstTwo(a multiaddr.Multiaddr) multiaddr.Multiaddr { return a[:min(len(a), 2)] }

// mapped returns the addresses of libp2p by way of the router.
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

// mappedDoors returns where others connect by way of the router.
func (h *Host) mappedDoors(doors []netip.AddrPort) []netip.AddrPort {
	var out []netip.AddrPort
	for _, door := range doors {
		if to, ok := h.ports.outer("tcp", door); ok {
			out = append(out, netip.AddrPortFrom(to.Addr().Unmap(), to.Port()))
		}
	}
	return out
}
