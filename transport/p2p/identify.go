package p2p

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/libp2p/go-libp2p/core/peer"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	"github.com/multiformats/go-multistream"

	"github.com/elrun/elrun/elastic"
)

// Identify asks who listens at an address of TCP, by a TLS handshake and no more. Whoever it is
// proves that the ID is its own, which makes it no member yet: Prove finds out. An address
// that ends in an ID needs no asking.
func (h *Host) Identify(ctx context.Context, addr string) (elastic.Member, error) {
	m, err := h.identify(ctx, addr)
	if err != nil {
		return elastic.Member{}, fmt.Errorf("p2p: identify %s: %w", addr, err)
	}
	return m, nil
}

func (h *Host) identify(ctx context.Context, addr string) (elastic.Member, error) {
	a, err := multiaddr.NewMultiaddr(addr)
	if err != nil {
		return elastic.Member{}, err
	}
	m := elastic.Member{Addrs: []string{addr}}
	_, id := peer.SplitAddr(a)
	if id != "" {
		m.ID = elastic.ID(id.String())
		return m, nil
	}
	err = errors.New("no interface has such addresses")
	for _, place := range onLinks(a, ownZones) {
		if id, err = h.greet(ctx, place); err == nil {
			m.ID = elastic.ID(id.String())
			return m, nil
		}
	}
	return elastic.Member{}, err
}

// ErrStranger: what answers at an address is no elrun.
var ErrStranger = errors.New("it is no elrun")

// greet makes a connection to an address as onLinks has it, and ends it when it has shown who
// is there.
func (h *Host) greet(ctx context.Context, a multiaddr.Multiaddr) (peer.ID, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	conn, err := new(manet.Dialer).DialContext(ctx, withOneZone(a))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := multistream.SelectProtoOrFail(libp2ptls.ID, conn); err != nil {
		return "", fmt.Errorf("%w: %w", ErrStranger, err)
	}
	cfg, key := h.identity.ConfigForPeer("")
	if err := tls.Client(conn, cfg).HandshakeContext(ctx); err != nil {
		return "", fmt.Errorf("%w: %w", ErrStranger, err)
	}
	return peer.IDFromPublicKey(<-key)
}
