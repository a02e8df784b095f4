package p2p

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// A router may forward ports of its own to a host behind it, if the host asks by NAT-PMP (RFC 6886)
// or UPnP IGD. Other hosts then reach this host at the router's address. Each IPv4 port at which
// this host listens on the network is mapped. portMap makes its gateway renew the mappings, records
// them, and announces changes to the members.

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
	// gatewayFirst is the pause after the first search without a result: a router that has just
	// been switched on answers a little later. Each further search without a result doubles the
	// pause, up to gatewayAgain.
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

// portMap records the mappings that the router has granted. All methods are safe for concurrent
// use, except that only one call of run may be in progress at a time.
//
//	search      gatewayTime     no router: again after 2, 4, 8 ... s, at most gatewayAgain
//	found       mappedEvery     each round asks for all ports at which the host listens then
//	incomplete  gatewayAgain    a port is missing for that long: search again, it may be another router
//
// A router may refuse a port or take a while to grant it, and it forgets all mappings when it
// restarts. So a mapping is valid only while the latest answer of the router grants it.
type portMap struct {
	find func(context.Context) (gateway, error)
	wake chan struct{} // capacity 1; receives a value when the host listens at other ports

	// mu guards the fields below.
	mu      sync.Mutex
	granted map[uint16]netip.AddrPort // external address by the port of this host; zero if the router has refused
	asking  bool                      // run is in progress, and has not failed to find a router
	// changed is closed, and replaced, when granted or asking changes.
	changed chan struct{}
}

// newPortMap returns an empty portMap. A nil find means discoverGateway.
func newPortMap(find func(context.Context) (gateway, error)) *portMap {
	if find == nil {
		find = discoverGateway
	}
	return &portMap{find: find, wake: make(chan struct{}, 1), changed: make(chan struct{})}
}

// set records the mappings, and reports whether they differ from the mappings before. It wakes the
// callers of await even if nothing has changed. granted must not be changed afterwards.
func (p *portMap) set(granted map[uint16]netip.AddrPort, asking bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	is := !maps.Equal(p.granted, granted)
	p.granted, p.asking = granted, asking
	close(p.changed)
	p.changed = make(chan struct{})
	return is
}

// current returns the mappings, which the caller must not change, and the channel that is closed
// when they change.
func (p *portMap) current() (granted map[uint16]netip.AddrPort, asking bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.granted, p.asking, p.changed
}

// poke makes run check the ports now.
func (p *portMap) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// outer returns the external address of an address of this host; false if none is mapped. A mapping
// covers a port at all local addresses: a router knows only one address of this host.
func (p *portMap) outer(at netip.AddrPort) (netip.AddrPort, bool) {
	granted, _, _ := p.current()
	to := granted[at.Port()]
	return to, to.IsValid() && isMappable(at)
}

// isMappable reports whether a router can forward to an address: it is IPv4 and not loopback.
func isMappable(at netip.AddrPort) bool {
	return at.Addr().Unmap().Is4() && !at.Addr().IsLoopback() && at.Port() != 0
}

// run asks a router for mappings, and keeps them until ctx ends. ports returns the ports to map at
// the moment, announce tells the members of new external addresses, and report is called with the
// result, nil or an error of one line, whenever the result has changed.
func (p *portMap) run(ctx context.Context, ports func() []uint16, announce func(), report func(error)) {
	defer p.set(nil, false)
	p.set(nil, true)
	last := errors.New("nothing yet")
	tell := func(err error) {
		if ctx.Err() == nil && !errors.Is(err, last) { // a result is reported only when it differs from the last one
			report(err)
			last = err
		}
	}
	for pause := gatewayFirst; ctx.Err() == nil; {
		within, done := context.WithTimeout(ctx, gatewayTime)
		g, err := p.find(within)
		done()
		if err == nil {
			p.renew(ctx, g, ports, announce, tell)
			closeWithin(g, unmapTime)
			pause = gatewayFirst
			continue
		}
		p.set(nil, false)
		tell(errNoGateway)
		waitFor(ctx, pause, nil)
		pause = min(2*pause, gatewayAgain)
	}
}

// renew renews the mappings until ctx ends, or until a mapping has been missing for gatewayAgain:
// then this host may be behind another router.
func (p *portMap) renew(ctx context.Context, g gateway, ports func() []uint16, announce func(), tell func(error)) {
	for whole := time.Now(); ctx.Err() == nil && time.Since(whole) < gatewayAgain; {
		granted, lacks := make(map[uint16]netip.AddrPort), false
		for _, inner := range ports() {
			err := g.AddMapping(ctx, "tcp", int(inner))
			at, ok := g.GetMapping("tcp", int(inner))
			if granted[inner] = at; !ok {
				granted[inner] = netip.AddrPort{}
			}
			lacks = lacks || err != nil || !ok
		}
		fresh := p.set(granted, true)
		if lacks {
			tell(errUnmapped)
		} else if whole = time.Now(); len(granted) > 0 { // nothing to tell while no port is to be mapped
			tell(nil)
		}
		if fresh {
			announce()
		}
		waitFor(ctx, mappedEvery, p.wake)
	}
}

// await returns when the router has answered for all ports, when ctx ends, or when run does not run
// or finds no router.
func (p *portMap) await(ctx context.Context, ports func() []uint16) {
	for {
		granted, asking, changed := p.current()
		// A refused port has an entry, too: any answer of the router ends the wait.
		lacks := func(inner uint16) bool { _, asked := granted[inner]; return !asked }
		if !asking || !slices.ContainsFunc(ports(), lacks) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// closeWithin closes c, and returns after d at the latest; the call of Close may go on, in a
// goroutine that ends with it. So a router that does not answer does not delay the end of the
// process.
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
