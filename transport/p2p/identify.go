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

// Identify returns the member that listens at a TCP multiaddr, by a TLS handshake alone. The
// handshake proves that the peer holds the key of its ID. It does not prove that the peer is a
// member; Prove checks the membership. If the address ends in an ID Identify dials nothing.
func (h *Host) Identify(ctx context.Context, addr string) (elastic.Member, error) {
	m, err := identify(ctx, h.paths.identity, addr)
	if err != nil {
		return elastic.Member{}, fmt.Errorf("p2p: identify %s: %w", addr, err)
	}
	return m, nil
}

// identify does the work of Identify. own is the identity of this host.
func identify(ctx context.Context, own *libp2ptls.Identity, addr string) (elastic.Member, error) {
	a, err := multiaddr.NewMultiaddr(addr)
	if err != nil {
		return elastic.Member{}, err
	}
	m := elastic.Member{Addrs: []string{addr}}
	_, id := peer.SplitAddr(a)
	// The address names the peer. A later dial checks the name by its handshake.
	if id != "" {
		m.ID = elastic.ID(id.String())
		return m, nil
	}
	// A link-local address may belong to any link, so each link of this host is tried. Without a
	// link the loop does not run, and this error is returned.
	err = errors.New("the address is link-local, and no interface of this host that is up has a link-local address")
	for _, place := range onLinks(a, ownZones) {
		if id, err = identifyAt(ctx, own, place); err == nil {
			m.ID = elastic.ID(id.String())
			return m, nil
		}
	}
	return elastic.Member{}, err
}

// ErrStranger means that the process at an address does not speak this protocol. The address is
// probably wrong, or its port was given to another program.
var ErrStranger = errors.New("it is no elrun")

// identifyAt connects to an address in the form of onLinks, makes the TLS handshake, closes the
// connection and returns the peer ID. It does not use the swarm, whose gate allows no dial to an
// unknown peer. It ends after handshakeTime at the latest, and fails with ErrStranger if another
// program listens at the address.
func identifyAt(ctx context.Context, own *libp2ptls.Identity, a multiaddr.Multiaddr) (peer.ID, error) {
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
	// HandshakeContext calls the verification of cfg, which sends the key before the handshake
	// returns.
	cfg, key := own.ConfigForPeer("") // any peer; its public key comes over the channel
	if err := tls.Client(conn, cfg).HandshakeContext(ctx); err != nil {
		return "", fmt.Errorf("%w: %w", ErrStranger, err)
	}
	return peer.IDFromPublicKey(<-key)
}
