package discovery

import (
	"errors"
	"fmt"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"
)

// maxBootstrap bounds the number of bootstrap addresses. A session dials all of them at the same
// time.
const maxBootstrap = 64

// parseBootstrap parses addresses of bootstrap nodes in the form that elrun bootstrap prints: an
// IP address or DNS name, a TCP port and an ID. Several addresses with one ID belong to one node.
func parseBootstrap(addrs []string) ([]peer.AddrInfo, error) {
	if len(addrs) > maxBootstrap {
		return nil, fmt.Errorf("%d bootstrap addresses, at most %d: name fewer", len(addrs), maxBootstrap)
	}
	all := make([]multiaddr.Multiaddr, 0, len(addrs))
	for _, text := range addrs {
		a, err := parseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("bootstrap address %.80q: %w; want /ip4/ADDRESS/tcp/PORT/p2p/ID, as elrun bootstrap prints it", text, err)
		}
		all = append(all, a)
	}
	infos, err := peer.AddrInfosFromP2pAddrs(all...)
	if err != nil {
		return nil, fmt.Errorf("bootstrap addresses: %w", err)
	}
	return infos, nil
}

// parseAddr parses one address of a bootstrap node. It accepts only TCP, the one transport of a
// node, and requires the ID: the TLS handshake proves it, so no other node can answer in its place.
func parseAddr(text string) (multiaddr.Multiaddr, error) {
	if len(text) > maxAddr {
		return nil, errors.New("it is too long")
	}
	a, err := multiaddr.NewMultiaddr(text)
	if err != nil {
		return nil, errors.New("it is not a multiaddr")
	}
	// Exactly three parts: host, TCP port and ID.
	if len(a) != 3 || a[1].Code() != multiaddr.P_TCP || a[1].Value() == "0" {
		return nil, errors.New("it must have three parts: host, TCP port and ID")
	}
	switch a[0].Code() {
	case multiaddr.P_IP4, multiaddr.P_IP6, multiaddr.P_DNS, multiaddr.P_DNS4, multiaddr.P_DNS6:
	default:
		return nil, errors.New("it must begin with an IP address or a DNS name")
	}
	if a[2].Code() != multiaddr.P_P2P {
		return nil, errors.New("it must end with the ID of the node")
	}
	return a, nil
}
