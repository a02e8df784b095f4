package p2p

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/discovery/mdns"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/elrun/elrun/elastic"
)

// ErrNoNetwork: this host listens on loopback only, where there is nobody to discover.
var ErrNoNetwork = errors.New("no interface but loopback")

// maxHintAddrs is how many addresses of a found peer are passed on.
const maxHintAddrs = 16

// Discover tells others on the local network, by multicast DNS, where this host listens,
// and calls found with those that do the same under the same job name, until ctx ends
// or the host closes; it returns why it ended. It returns ErrNoNetwork at once where
// there is no other network than loopback. Without it a host advertises nothing.
//
// What is found is a hint that anybody on the network can make up: it becomes a member
// only by Prove. found is called one at a time, also again for the same peer, and must
// not block for long.
func (h *Host) Discover(ctx context.Context, found func(elastic.Member)) error {
	if len(h.farAddrs()) == 0 {
		return fmt.Errorf("p2p: discover: %w", ErrNoNetwork)
	}
	hints := &hints{host: h, found: found}
	s := mdns.NewMdnsService(advertised{h.host, h}, serviceName(h.job), hints)
	if err := s.Start(); err != nil {
		return fmt.Errorf("p2p: discover: %w", errors.Join(err, s.Close()))
	}
	var why error
	select {
	case <-ctx.Done():
		why = context.Cause(ctx)
	case <-h.done:
		why = errors.New("host closed")
	}
	hints.stop()
	return fmt.Errorf("p2p: discover: %w", errors.Join(why, s.Close()))
}

// serviceName is the DNS-SD name of a job. The job's name is not to be read from it, and
// it is as long as such names may be.
func serviceName(job string) string {
	sum := sha256.Sum256([]byte("elrun discovery\x00" + job))
	text := base32.StdEncoding.EncodeToString(sum[:])
	return "_elr-" + strings.ToLower(text[:11]) + "._udp"
}

// farAddrs returns the addresses that are not of loopback.
func (h *Host) farAddrs() []multiaddr.Multiaddr {
	return multiaddr.FilterAddrs(h.places(), func(a multiaddr.Multiaddr) bool { return !manet.IsIPLoopback(a) })
}

// advertised is the host as it is advertised: without the addresses of loopback.
type advertised struct {
	host.Host
	h *Host
}

// Network implements host.Host.
func (a advertised) Network() network.Network { return farNetwork{a.Host.Network(), a.h} }

// farNetwork is the part of advertised that lists the addresses.
type farNetwork struct {
	network.Network
	h *Host
}

// InterfaceListenAddresses implements network.Network.
func (n farNetwork) InterfaceListenAddresses() ([]multiaddr.Multiaddr, error) {
	return n.h.farAddrs(), nil
}

// hints passes on what mDNS finds.
type hints struct {
	host *Host

	mu    sync.Mutex
	found func(elastic.Member) // nil after stop
}

// HandlePeerFound implements mdns.Notifee. It is called in goroutines that nobody waits
// for, so it may come after the end.
func (n *hints) HandlePeerFound(info peer.AddrInfo) {
	m := elastic.Member{ID: elastic.ID(info.ID.String())}
	for _, a := range info.Addrs[:min(len(info.Addrs), maxHintAddrs)] {
		if !manet.IsIPLoopback(a) {
			m.Addrs = append(m.Addrs, a.String())
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.found != nil && m.ID != n.host.id && len(m.Addrs) > 0 {
		n.found(m)
	}
}

// stop makes sure that found is not called any more.
func (n *hints) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.found = nil
}
