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

// Greeting is the result of Greet: the facts that a process outside of the job learns of a member
// at an address. The fields are filled in order; after an error the later ones are zero.
type Greeting struct {
	Addr    string        // remote address of the connection
	Connect time.Duration // time to connect by TCP, which takes one round trip
	// ID is the ID of the member. The handshake has proven that the member holds its key.
	ID        elastic.ID
	Handshake time.Duration // time of the security handshake
	// Open says that newcomers may prove their right to join there, by this version's protocol.
	Open bool
}

// Greet connects to a member at HOST:PORT or at a multiaddr, over TCP and TLS, and asks whether
// newcomers may prove their right to join there. Greet proves no right itself, so the member would
// close the connection after a while. The error names the step that failed; the fields of g from
// earlier steps are valid.
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
	// multistream takes no ctx, so the limit of ctx is also the deadline of the socket.
	limit, limited := ctx.Deadline()
	if limited {
		if err := conn.SetDeadline(limit); err != nil {
			return g, err
		}
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // ends reads that have no deadline
	return g, g.shake(ctx, conn)
}

// dialArgs returns the network and the address of a multiaddr, in the form that net.Dial takes. It
// fails for relayed addresses and for QUIC.
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

// shake makes the security handshake on a connection and negotiates the protocol of newcomers. The
// steps are the steps of a dial by libp2p, one by one, so that the error names the step that
// failed: TCP, multistream-select, TLS, yamux, the prove protocol. It makes a key for this
// connection only, because Greet does not join the job.
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
		return fmt.Errorf("the program that listens there does not speak libp2p: %w", err)
	}
	secured, err := t.SecureOutbound(ctx, conn, "") // "" accepts any peer ID
	if err != nil {
		return fmt.Errorf("TLS handshake: %w", err)
	}
	defer secured.Close()
	g.ID, g.Handshake = elastic.ID(secured.RemotePeer().String()), time.Since(begun)
	// The multiplexer is agreed on within the TLS handshake (ALPN).
	if secured.ConnState().StreamMultiplexer != yamux.ID {
		return errors.New("the member does not accept yamux, over which elrun opens streams: is it an elrun of another version?")
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
	if _, err := s.Write(proposalOf(proveProtocol)); err != nil {
		return fmt.Errorf("the member admits no newcomers: %w", err)
	}
	switch got, err := readProposal(s); {
	case err != nil:
		return fmt.Errorf("the member admits no newcomers: %w", err)
	case strings.HasPrefix(string(got), provePrefix) && got != proveProtocol:
		return versionError(string(got))
	case got != proveProtocol:
		return fmt.Errorf("the member admits no newcomers: it answered %q", got)
	}
	g.Open = true
	return nil
}
