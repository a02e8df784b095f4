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

// ErrNoNetwork means that this host listens on loopback only, where it can discover no other host.
var ErrNoNetwork = errors.New("no interface but loopback")

// maxHintAddrs is the number of addresses of a discovered peer that are passed on.
const maxHintAddrs = 16

// Discover advertises the addresses of this host on the local network by multicast DNS (RFC 6762),
// and calls found with the peers that do the same under the same job name. It runs until ctx ends
// or the host closes, and returns the reason. It returns ErrNoNetwork at once where there is no
// network but loopback. A host that never calls Discover advertises nothing.
//
// A discovered peer is a hint that anybody on the network can forge; only Prove makes it a member.
// found is called by one goroutine at a time, possibly again for the same peer, and must not block
// for long.
func (h *Host) Discover(ctx context.Context, found func(elastic.Member)) error {
	if len(h.listener.farAddrs()) == 0 {
		return fmt.Errorf("p2p: discover: %w", ErrNoNetwork)
	}
	hints := &hints{self: h.id, found: found}
	s := mdns.NewMdnsService(advertised{h.conns.host, h.listener}, serviceName(h.job), hints)
	if err := s.Start(); err != nil {
		return fmt.Errorf("p2p: discover: %w", errors.Join(err, s.Close()))
	}
	var why error
	select {
	case <-ctx.Done():
		why = context.Cause(ctx)
	case <-h.tasks.closed():
		why = errors.New("host closed")
	}
	// After stop no call of found begins, though mDNS may still call the notifee.
	hints.stop()
	return fmt.Errorf("p2p: discover: %w", errors.Join(why, s.Close()))
}

// serviceName returns the DNS-SD service name of a job (RFC 6763). It is made of a hash, so that it
// does not reveal the job's name, and has the greatest length that such a name may have.
func serviceName(job string) string {
	sum := sha256.Sum256([]byte("elrun discovery\x00" + job))
	text := base32.StdEncoding.EncodeToString(sum[:])
	return "_elr-" + strings.ToLower(text[:11]) + "._udp"
}

// advertised is the host without its loopback addresses: at another host a loopback address means
// that other host. The mDNS service reads the addresses anew for each answer.
type advertised struct {
	host.Host
	listener *listener
}

// Network implements host.Host.
func (a advertised) Network() network.Network { return farNetwork{a.Host.Network(), a.listener} }

// farNetwork is the network of advertised. It lists the addresses that are not on loopback.
type farNetwork struct {
	network.Network
	listener *listener
}

// InterfaceListenAddresses implements network.Network.
func (f farNetwork) InterfaceListenAddresses() ([]multiaddr.Multiaddr, error) {
	return f.listener.farAddrs(), nil
}

// hints receives the results of multicast DNS and passes them on to found. mu also serializes the
// calls of found.
type hints struct {
	// self is the ID of this host, which also receives its own announcements.
	self elastic.ID

	// mu guards the fields below.
	mu    sync.Mutex
	found func(elastic.Member) // nil after stop
}

// HandlePeerFound implements mdns.Notifee. mDNS calls it in goroutines that nobody waits for, so a
// call may come after Discover has returned.
func (h *hints) HandlePeerFound(info peer.AddrInfo) {
	m := elastic.Member{ID: elastic.ID(info.ID.String())}
	for _, a := range info.Addrs[:min(len(info.Addrs), maxHintAddrs)] {
		if !manet.IsIPLoopback(a) {
			m.Addrs = append(m.Addrs, a.String())
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.found != nil && m.ID != h.self && len(m.Addrs) > 0 {
		h.found(m)
	}
}

// stop makes sure that found is not called any more. It waits for a call in progress.
func (h *hints) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.found = nil
}
