package p2p

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"
)

// An inbound connection holds one of maxHalfOpen slots until the security handshake shows its peer
// ID, or until the handshake times out. A client that connects and sends nothing holds a slot for
// all of that time. So each source address has a limit of its own, far below the number of slots:
// one address cannot use up all slots.

const (
	// maxHalfOpen is the number of inbound connections that may be in the handshake.
	maxHalfOpen = 512
	// maxHalfOpenPerAddr is the number of such connections that may come from one IPv4 address or
	// from one IPv6 /64, as a single host has a whole /64. Several peers of one host may dial at
	// the same time.
	maxHalfOpenPerAddr = 64
	// maxHalfOpenLocal is the number of such connections that may come over loopback, from all
	// peers of this host.
	maxHalfOpenLocal = 256
)

// halfOpen is a resource manager that also limits, per source address, the inbound connections in
// the handshake. It is safe for concurrent use.
type halfOpen struct {
	network.ResourceManager

	// mu guards the fields below.
	mu     sync.Mutex
	counts map[netip.Prefix]int // connections in the handshake by source; no zeros
}

// newHalfOpen returns a resource manager that checks the limit per source and then asks m. m has
// the limit over all sources.
func newHalfOpen(m network.ResourceManager) *halfOpen {
	return &halfOpen{ResourceManager: m, counts: make(map[netip.Prefix]int)}
}

// OpenConnection implements network.ResourceManager.
func (h *halfOpen) OpenConnection(d network.Direction, usesFD bool, from multiaddr.Multiaddr) (network.ConnManagementScope, error) {
	source, ok := sourceOf(from)
	if d != network.DirInbound || !ok {
		return h.ResourceManager.OpenConnection(d, usesFD, from)
	}
	if !h.enter(source) {
		return nil, fmt.Errorf("too many connections from %v whose handshake has not ended: %w", source, network.ErrResourceLimitExceeded)
	}
	// The limits of libp2p apply as well.
	scope, err := h.ResourceManager.OpenConnection(d, usesFD, from)
	if err != nil {
		h.leave(source)
		return nil, err
	}
	return &halfOpenScope{ConnManagementScope: scope, leave: sync.OnceFunc(func() { h.leave(source) })}, nil
}

// enter takes a slot for a source; false if the source has reached its limit. The caller must call
// leave after true.
func (h *halfOpen) enter(source netip.Prefix) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	limit := maxHalfOpenPerAddr
	// All peers of this host count as one source (sourceOf).
	if source.Addr().IsLoopback() {
		limit = maxHalfOpenLocal
	}
	if h.counts[source] >= limit {
		return false
	}
	h.counts[source]++
	return true
}

// leave frees a slot of a source.
func (h *halfOpen) leave(source netip.Prefix) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts[source]--; h.counts[source] == 0 {
		delete(h.counts, source)
	}
}

// sourceOf returns the prefix under which an address is counted: the IPv4 address, the IPv6 /64, or
// ::1 for all of loopback. It returns false for an address without an IP address of the peer
// itself, such as a relayed address.
func sourceOf(from multiaddr.Multiaddr) (netip.Prefix, bool) {
	if isRelayed(from) {
		return netip.Prefix{}, false
	}
	ip, ok := hostOf(from)
	if !ok {
		return netip.Prefix{}, false
	}
	if ip.IsLoopback() {
		return netip.PrefixFrom(netip.IPv6Loopback(), 128), true
	}
	bits := 32
	if !ip.Is4() {
		bits = 64
	}
	p, err := ip.WithZone("").Prefix(bits)
	return p, err == nil
}

// halfOpenScope is the resource scope of one connection. It frees the slot when the peer ID is
// known, or when the connection ends. leave is a sync.OnceFunc, so the slot is freed once, by the
// first call of SetPeer or Done.
type halfOpenScope struct {
	network.ConnManagementScope
	leave func()
}

// SetPeer implements network.ConnManagementScope.
func (h *halfOpenScope) SetPeer(id peer.ID) error {
	h.leave()
	return h.ConnManagementScope.SetPeer(id)
}

// Done implements network.ConnManagementScope.
func (h *halfOpenScope) Done() {
	h.leave()
	h.ConnManagementScope.Done()
}
