package p2p

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	"github.com/multiformats/go-multistream"

	"github.com/elrun/elrun/elastic"
)

// Greeting is what somebody who is no member finds out about a member at an address. Later
// fields are zero where it came no further.
type Greeting struct {
	Addr      string        // of the connection
	Connect   time.Duration // that the TCP connection took, a round trip
	ID        elastic.ID    // who has proven by the handshake to hold the key of this ID
	Handshake time.Duration // that this took
	// Open says that newcomers may prove themselves there, by the protocol of this version.
	Open bool
}

// Greet connects to a member at HOST:PORT or at a multiaddr, over TCP and TLS, and asks whether
// newcomers may prove themselves there. It proves nothing itself, so that the member
// closes the connection after a while. An error tells why it came no further.
func Greet(ctx context.Context, addr string) (g Greeting, err error) {
	network, address := "tcp", addr
	if strings.HasPrefix(addr, "/") {
		if network, address, err = dialArgs(addr); err != nil {
			return g, err
		}
	}
	var d net.Dialer
	begun := time.Now()
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return g, err
	}
	defer conn.Close()
	g.Addr, g.Connect = conn.RemoteAddr().String(), time.Since(begun)
	limit, limited := ctx.Deadline()
	if limited {
		if err := conn.SetDeadline(limit); err != nil {
			return g, err
		}
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	return g, g.shake(ctx, conn)
}

// dialArgs returns the network and the address of a multiaddr.
func dialArgs(text string) (network, address string, err error) {
	a, err := multiaddr.NewMultiaddr(text)
	if err != nil {
		return "", "", fmt.Errorf("address %q: %w", text, err)
	}
	network, address, err = manet.DialArgs(a)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("address %s: %w", text, err)
	case isRelayed(a) || !strings.HasPrefix(network, "tcp"):
		return "", "", fmt.Errorf("address %s: not over TCP", text)
	}
	return network, address, nil
}

// shake makes the handshake on a connection and asks for the protocol of newcomers.
func (g *Greeting) shake(ctx context.Context, conn net.Conn) error {
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	muxers := []upgrader.StreamMuxer{{ID: yamux.ID, Muxer: muxer()}}
	t, err := libp2ptls.New(libp2ptls.ID, key, muxers)
	if err != nil {
		return fmt.Errorf("make TLS: %w", err)
	}
	begun := time.Now()
	if _, err := multistream.SelectOneOf([]protocol.ID{libp2ptls.ID}, conn); err != nil {
		return fmt.Errorf("what listens there does not speak libp2p: %w", err)
	}
	secured, err := t.SecureOutbound(ctx, conn, "") // whoever it is
	if err != nil {
		return fmt.Errorf("TLS handshake: %w", err)
	}
	defer secured.Close()
	g.ID, g.Handshake = elastic.ID(secured.RemotePeer().String()), time.Since(begun)
	if secured.ConnState().StreamMultiplexer != yamux.ID {
		return errors.New("it has no streams of yamux: is it an elrun of another version?")
	}
	streams, err := muxer().NewConn(secured, false, nil)
	if err != nil {
		return fmt.Errorf("open streams: %w", err)
	}
	defer streams.Close()
	s, err := streams.OpenStream(ctx)
	if err != nil {
		return fmt.Errorf("open a stream: %w", err)
	}
	defer s.Reset()
	if _, err := multistream.SelectOneOf([]protocol.ID{proveProtocol}, s); err != nil {
		return fmt.Errorf("it lets in no newcomers: %w", err)
	}
	g.Open = true
	return nil
}
