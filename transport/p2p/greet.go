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
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/sec"
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
	kind, address := "tcp", addr
	if strings.HasPrefix(addr, "/") {
		if kind, address, err = dialArgs(addr); err != nil {
			return g, err
		}
	}
	var d net.Dialer
	begun := time.Now()
	conn, err := d.DialContext(ctx, kind, address)
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

// dialArgs returns the kind of network and the address of a multiaddr, in the form that net.Dial takes. It
// fails for relayed addresses and for QUIC.
func dialArgs(text string) (kind, address string, err error) {
	a, err := multiaddr.NewMultiaddr(text)
	if err != nil {
		return "", "", fmt.Errorf("address %q: %w", text, err)
	}
	kind, address, err = manet.DialArgs(a)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("address %s: %w", text, err)
	case isRelayed(a) || !strings.HasPrefix(kind, "tcp"):
		return "", "", fmt.Errorf("address %s: not over TCP", text)
	}
	return kind, address, nil
}

// shake makes the security handshake on a connection and negotiates the protocol of newcomers.
func (g *Greeting) shake(ctx context.Context, conn net.Conn) error {
	v, err := visit(ctx, conn, "") // "" accepts any peer ID
	g.ID, g.Handshake = v.id, v.handshake
	if err != nil {
		return err
	}
	defer v.close()
	switch got, err := v.propose(proveProtocol); {
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

// visitor is the connection of a process outside of the job to a member, with one stream.
type visitor struct {
	id        elastic.ID    // of the member; the handshake has proven that the member holds its key
	handshake time.Duration // time of the security handshake
	secured   sec.SecureConn
	streams   network.MuxedConn
	stream    network.MuxedStream
}

// visit makes the security handshake with the peer want, or any peer if want is "", and opens a stream.
// The steps are the steps of a dial by libp2p, one by one, so that the error names the step that
// failed: multistream-select, TLS, yamux. It makes a key for this connection only, because the process
// does not join the job. After an error the fields of earlier steps are valid, and nothing is open but
// conn.
func visit(ctx context.Context, conn net.Conn, want peer.ID) (v visitor, err error) {
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		return v, fmt.Errorf("make a key: %w", err)
	}
	muxers := []upgrader.StreamMuxer{{ID: yamux.ID, Muxer: muxer()}}
	t, err := libp2ptls.New(libp2ptls.ID, key, muxers)
	if err != nil {
		return v, fmt.Errorf("make TLS: %w", err)
	}
	// The listener offers TLS, Noise or both; a host with Config.Security "noise" fails here.
	begun := time.Now()
	if _, err := multistream.SelectOneOf([]protocol.ID{libp2ptls.ID}, conn); err != nil {
		return v, fmt.Errorf("the program that listens there does not speak libp2p: %w", err)
	}
	if v.secured, err = t.SecureOutbound(ctx, conn, want); err != nil {
		return v, fmt.Errorf("TLS handshake: %w", err)
	}
	defer func() {
		if err != nil {
			v.close()
		}
	}()
	v.id, v.handshake = elastic.ID(v.secured.RemotePeer().String()), time.Since(begun)
	// The multiplexer is agreed on within the TLS handshake (ALPN).
	if v.secured.ConnState().StreamMultiplexer != yamux.ID {
		return v, errors.New("the member does not accept yamux, over which elrun opens streams: is it an elrun of another version?")
	}
	if v.streams, err = muxer().NewConn(v.secured, false, nil); err != nil {
		return v, fmt.Errorf("open streams: %w", err)
	}
	if v.stream, err = v.streams.OpenStream(ctx); err != nil {
		return v, fmt.Errorf("open a stream: %w", err)
	}
	return v, nil
}

// propose proposes a protocol on the stream, and returns the answer.
func (v visitor) propose(p protocol.ID) (protocol.ID, error) {
	if _, err := v.stream.Write(proposalOf(p)); err != nil {
		return "", err
	}
	return readProposal(v.stream)
}

// close ends the stream and the connection.
func (v visitor) close() {
	if v.stream != nil {
		_ = v.stream.Reset()
	}
	if v.streams != nil {
		_ = v.streams.Close()
	}
	_ = v.secured.Close()
}
