package wire

import (
	"strings"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/spec"
)

// ShownAddrs bounds the addresses of the first member of a ticket, which is the issuer, and
// MoreAddrs bounds the addresses of every other member.
const ShownAddrs, MoreAddrs = 4, 2

// BestAddrs returns the member's addresses of the best kind that it has, but no more than limit
// addresses. Addresses of worse kinds are left out, because people copy the ticket, and a long
// line breaks easily.
func BestAddrs(m elastic.Member, limit int) (out []string) {
	best := addrKinds
	for _, a := range m.Addrs {
		kind := addrKind(a)
		if kind < best {
			best, out = kind, nil
		}
		if kind == relayedAddr && !strings.Contains(a, "/p2p-circuit/p2p/") {
			a += "/p2p/" + string(m.ID)
		}
		if kind == best && len(out) < limit {
			out = append(out, a)
		}
	}
	return out
}

// The kinds of addresses, best first.
const (
	netAddr     = iota // of a network interface
	linkAddr           // link-local: of one network segment only
	relayedAddr        // through a relay
	nearAddr           // loopback: this host only
	addrKinds          // number of kinds
)

// addrKind returns the kind of a multiaddr.
func addrKind(addr string) int {
	switch {
	case strings.Contains(addr, "/p2p-circuit"):
		return relayedAddr
	case spec.OnlyLoopback([]string{addr}):
		return nearAddr
	case strings.HasPrefix(addr, "/ip6/fe80:") || strings.HasPrefix(addr, "/ip6zone/"):
		return linkAddr
	}
	return netAddr
}
