package p2p

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	natpmp "github.com/jackpal/go-nat-pmp"
	"github.com/libp2p/go-libp2p/p2p/net/nat"
	"github.com/libp2p/go-netroute"
)

const (
	// pmpTime is how long a router may take to answer by NAT-PMP (RFC 6886).
	pmpTime = 2 * time.Second
	// pmpLifetime is the lifetime of a mapping, after which the router removes it, and pmpRenew
	// the age at which a mapping is renewed. The lifetime is short, as a killed process cannot
	// remove its mappings.
	pmpLifetime = time.Minute
	pmpRenew    = pmpLifetime / 3
)

// discoverGateway finds the router of this host: by NAT-PMP at the gateway of the default route, or
// by UPnP. The result is the router that answers first. libp2p's own search for NAT-PMP does not
// find the route on Linux.
func discoverGateway(ctx context.Context) (gateway, error) {
	type found struct {
		g   gateway
		err error
	}
	results := make(chan found, 2)
	go func() {
		g, err := discoverPMP()
		results <- found{g, err}
	}()
	go func() {
		n, err := nat.DiscoverNAT(ctx)
		results <- found{n, err}
	}()
	// The slower search goes on in its goroutine; the channel has room for its result.
	first := <-results
	if first.err == nil {
		go func() { // neither search can be interrupted
			if late := <-results; late.err == nil {
				_ = late.g.Close()
			}
		}()
		return first.g, nil
	}
	second := <-results
	if second.err != nil {
		return nil, fmt.Errorf("%w: %w", errNoGateway, errors.Join(first.err, second.err))
	}
	return second.g, nil
}

// pmpGateway is a router that maps ports by NAT-PMP. All methods are safe for concurrent use.
type pmpGateway struct {
	client *natpmp.Client

	mu      sync.Mutex       // held while the router is asked
	outside netip.Addr       // the router's external address
	granted map[int]pmpGrant // by the port of this host
}

// pmpGrant is the router's answer for a port. A refusal is kept, too, so that a router is not asked
// more often than every pmpRenew.
type pmpGrant struct {
	port  uint16    // the external port; 0: the router has refused
	asked time.Time // time of the request
}

// discoverPMP returns the gateway of the default route, if it answers by NAT-PMP.
func discoverPMP() (*pmpGateway, error) {
	router, err := netroute.New()
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	far := net.IPv4(192, 0, 2, 1) // reserved for documentation (RFC 5737): nothing is sent there
	_, ip, _, err := router.Route(far)
	if err != nil || ip == nil {
		return nil, errors.Join(errors.New("no default route by a gateway"), err)
	}
	g := &pmpGateway{client: natpmp.NewClientWithTimeout(ip, pmpTime), granted: make(map[int]pmpGrant)}
	return g, g.locate()
}

// locate asks for the router's external address. The address may change at any time, for example at
// the end of a provider's lease, so each renewal asks again.
func (p *pmpGateway) locate() error {
	a, err := p.client.GetExternalAddress()
	if err != nil {
		return fmt.Errorf("ask the router for its external address: %w", err)
	}
	p.outside = netip.AddrFrom4(a.ExternalIPAddress)
	return nil
}

// AddMapping implements gateway. It asks the router only if the last request is older than
// pmpRenew. It proposes the external port of the last grant, or the inner port at first; the router
// decides. A failed request counts as a refusal until the next request.
func (g *pmpGateway) AddMapping(_ context.Context, protocol string, port int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	last, asked := g.granted[port]
	if asked && time.Since(last.asked) < pmpRenew {
		return nil
	}
	outer := port
	// A router that was restarted has forgotten the mapping, and then grants the same port again.
	if last.port != 0 { // others know this port already
		outer = int(last.port)
	}
	grant := pmpGrant{asked: time.Now()}
	err := g.locate()
	if err == nil {
		var r *natpmp.AddPortMappingResult
		if r, err = g.client.AddPortMapping(protocol, port, outer, int(pmpLifetime/time.Second)); err == nil {
			grant.port = r.MappedExternalPort
		}
	}
	// After a failure the port is 0: the former mapping may have ended.
	g.granted[port] = grant
	if err != nil {
		return fmt.Errorf("map %s port %d: %w", protocol, port, err)
	}
	return nil
}

// GetMapping implements gateway.
func (p *pmpGateway) GetMapping(_ string, port int) (netip.AddrPort, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.granted[port]
	return netip.AddrPortFrom(p.outside, at.port), at.port != 0 && !p.outside.IsUnspecified()
}

// Close removes the mappings, by a request with the external port 0 and the lifetime 0 (RFC 6886,
// section 3.4). If the router does not answer, the mappings end after pmpLifetime.
func (g *pmpGateway) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for port, at := range g.granted {
		// A port that the router has refused has no mapping.
		if at.port != 0 {
			_, err := g.client.AddPortMapping("tcp", port, 0, 0)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
