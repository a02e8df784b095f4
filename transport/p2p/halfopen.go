package p2p

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"
)

// Whoever connects takes one of a bounded number of places until the handshake tells who it
// is, or its time is up. One that only connects holds a place for all of that time. So
// each address has a bound of its own, far below the number of places: those of one cannot
// keep out the others.

const (
	// maxHalfOpen is how many connections that came in may be in the handshake.
	maxHalfOpen = 512
	// maxHalfOpenPerAddr is how many of them may come from one IPv4 address, or one /64 of
	// IPv6, which is what a single host has. Several peers of one host dial at once.
	maxHalfOpenPerAddr = 64
	// maxHalfOpenLocal is how many may come over loopback, from all peers of this host.
	maxHalfOpenLocal = 256
)

// halfOpen bounds the connections in the handshake by address.
type halfOpen struct {
	network.ResourceManager

	mu     sync.Mutex
	counts map[netip.Prefix]int
}

// newHalfOpen puts the bound before the limits of m.
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
		return nil, fmt.Errorf("too many connections from %v that have not said who they are: %w", source, network.ErrResourceLimitExceeded)
	}
	scope, err := h.ResourceManager.OpenConnection(d, usesFD, from)
	if err != nil {
		h.leave(source)
		return nil, err
	}
	return &halfOpenScope{ConnManagementScope: scope, leave: sync.OnceFunc(func() { h.leave(source) })}, nil
}

// enter takes a place for a source, and reports whether there is one.
func (h *halfOpen) enter(source netip.Prefix) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	limit := maxHalfOpenPerAddr
	if source.Addr().IsLoopback() {
		limit = maxHalfOpenLocal
	}
	if h.counts[source] >= limit {
		return false
	}
	h.counts[source]++
	return true
}

// leave gives the place back.
func (h *halfOpen) leave(source netip.Prefix) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts[source]--; h.counts[source] == 0 {
		delete(h.counts, source)
	}
}

// sourceOf returns the addresses that count as one with that of a connection; false if it
// has no IP address of its own.
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

// halfOpenScope is the account of one connection, which leaves its place when it is known who
// is there, or with its end.
type halfOpenScope struct {
	network.ConnManagementScope
	leave func()
}

// SetPeer implements network.ConnManagementScope.
func (s *halfOpenScope) SetPeer(id peer.ID) error {
	s.leave()
	return s.ConnManagementScope.SetPeer(id)
}

// Done implements network.ConnManagementScope.
func (s *halfOpenScope) Done() {
	s.leave()
	s.ConnManagementScope.Done()
}
