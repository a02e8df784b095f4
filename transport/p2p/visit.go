package p2p

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	"github.com/multiformats/go-multistream"

	"github.com/elrun/elrun/elastic"
)

// A process outside of the job opens a connection to a member under a fresh identity, as a stranger: to
// ask whether newcomers are admitted there (Greet), or, as the launcher of members that have died, to say
// that they are dead (Tell).

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
	g, s, leave, err := visit(ctx, kind, address, "") // "" accepts any peer ID
	if err != nil {
		return g, err
	}
	defer leave()
	err = propose(s, proveProtocol, nil)
	g.Open = err == nil
	if err != nil && !errors.Is(err, ErrVersion) {
		err = fmt.Errorf("the member admits no newcomers: %w", err)
	}
	return g, err
}

// dialArgs returns the kind of network and the address of a multiaddr, in the form that net.Dial takes. It
// fails for relayed addresses and for UDP.
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

// MaxObituaries bounds the obituaries that Tell sends at once.
const MaxObituaries = 64

// maxIDLength bounds the ID in an obituary, in bytes.
const maxIDLength = 64

// Obituary says that a member is dead. It proves itself by its signature and is true for ever, so neither
// who brings it nor a repetition matters.
type Obituary struct {
	ID        elastic.ID
	Signature [ed25519.SignatureSize]byte // by the key of the launcher that started the member
}

// Tell brings obituaries, at most MaxObituaries, to a member at one of its addresses. It returns nil if
// the member has told its group. ErrNoMember means that the process has ended. After another error it may
// be about to become a member, so tell it again.
func Tell(ctx context.Context, m elastic.Member, obituaries []Obituary) error {
	id, err := peer.Decode(string(m.ID))
	if err != nil {
		return fmt.Errorf("p2p: tell %s: %w", m.ID.Short(), err)
	}
	err = fmt.Errorf("%w: it has no address that can be dialled", ErrNoMember)
	for _, addr := range m.Addrs {
		kind, address, wrong := dialArgs(addr)
		if wrong != nil {
			continue
		}
		at := tellAt(ctx, kind, address, id, obituaries)
		if at == nil {
			return nil
		}
		if errors.Is(err, ErrNoMember) { // the member may live at an address that does not answer
			err = at
		}
	}
	return fmt.Errorf("p2p: tell %s: %w", m.ID.Short(), err)
}

// ErrNoMember means that a process has ended, so it is no member of a group.
var ErrNoMember = errors.New("no member")

// tellAt brings obituaries to the member with an ID at an address.
func tellAt(ctx context.Context, kind, address string, id peer.ID, obituaries []Obituary) error {
	_, s, leave, err := visit(ctx, kind, address, id)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w: %w", ErrNoMember, err)
	}
	if err != nil {
		return err
	}
	defer leave()
	err = propose(s, proveProtocol, append([]byte{obituaryWords}, encodeObituaries(obituaries)...))
	var answer [1]byte
	if err == nil {
		_, err = io.ReadFull(s, answer[:])
	}
	if err == nil && answer[0] != 1 {
		err = errors.New("it is in no group that it could tell, or a signature is wrong")
	}
	return err
}

// encodeObituaries returns the request of the launcher.
func encodeObituaries(obituaries []Obituary) []byte {
	b := []byte{byte(len(obituaries))}
	for _, o := range obituaries {
		b = append(append(b, byte(len(o.ID))), o.ID...)
		b = append(b, o.Signature[:]...)
	}
	return b
}

// readObituaries reads the request of a launcher.
func readObituaries(r io.Reader) ([]Obituary, error) {
	var n [1]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	if n[0] < 1 || n[0] > MaxObituaries {
		return nil, fmt.Errorf("%d obituaries, want 1 to %d", n[0], MaxObituaries)
	}
	out := make([]Obituary, n[0])
	for i := range out {
		if _, err := io.ReadFull(r, n[:]); err != nil {
			return nil, err
		}
		if n[0] < 1 || n[0] > maxIDLength {
			return nil, fmt.Errorf("an ID of %d bytes, want 1 to %d", n[0], maxIDLength)
		}
		id := make([]byte, n[0])
		if _, err := io.ReadFull(r, id); err != nil {
			return nil, err
		}
		out[i].ID = elastic.ID(id)
		if _, err := io.ReadFull(r, out[i].Signature[:]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// acceptObituaries handles the obituaries that a launcher brings. Its connection is closed afterwards.
func (a *admission) acceptObituaries(s network.Stream) {
	obituaries, err := readObituaries(s)
	if err != nil {
		_ = s.Reset()
		return
	}
	answer := byte(0)
	if a.onObituaries != nil && a.onObituaries(obituaries) {
		answer = 1
	}
	if _, err := s.Write([]byte{answer}); err == nil {
		waitEnd(s)
	}
	_ = s.Reset()
	a.expel(s.Conn())
}

// visit connects to the peer want at an address, or to any peer there if want is "", and opens a stream.
// The caller calls leave when it has read the answer. After an error nothing is open, and the fields of g
// from earlier steps are valid. The end of ctx also ends reads and writes of the stream.
func visit(ctx context.Context, kind, address string, want peer.ID) (g Greeting, s network.MuxedStream, leave func(), err error) {
	var d net.Dialer
	begun := time.Now()
	conn, err := d.DialContext(ctx, kind, address)
	if err != nil {
		return g, nil, nil, err
	}
	g.Addr, g.Connect = conn.RemoteAddr().String(), time.Since(begun)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	streams, err := g.shake(ctx, conn, want)
	if err != nil {
		stop()
		_ = conn.Close()
		return g, nil, nil, err
	}
	leave = func() {
		stop()
		_ = streams.Close()
	}
	if s, err = streams.OpenStream(ctx); err != nil {
		leave()
		return g, nil, nil, fmt.Errorf("open a stream: %w", err)
	}
	return g, s, leave, nil
}

// shake makes the security handshake on a connection. The steps are the steps of a dial by libp2p, one by
// one, so that the error names the step that failed: multistream-select, TLS, yamux. It makes a key for
// this connection only, because the process does not join the job.
func (g *Greeting) shake(ctx context.Context, conn net.Conn, want peer.ID) (network.MuxedConn, error) {
	// multistream takes no ctx, so the limit of ctx is also the deadline of the socket.
	if limit, limited := ctx.Deadline(); limited {
		if err := conn.SetDeadline(limit); err != nil {
			return nil, err
		}
	}
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	muxers := []upgrader.StreamMuxer{{ID: yamux.ID, Muxer: muxer()}}
	t, err := libp2ptls.New(libp2ptls.ID, key, muxers)
	if err != nil {
		return nil, fmt.Errorf("make TLS: %w", err)
	}
	begun := time.Now()
	if _, err := multistream.SelectOneOf([]protocol.ID{libp2ptls.ID}, conn); err != nil {
		return nil, fmt.Errorf("the program that listens there does not speak libp2p: %w", err)
	}
	secured, err := t.SecureOutbound(ctx, conn, want)
	if err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	g.ID, g.Handshake = elastic.ID(secured.RemotePeer().String()), time.Since(begun)
	// The multiplexer is agreed on within the TLS handshake (ALPN).
	if secured.ConnState().StreamMultiplexer != yamux.ID {
		return nil, errors.New("the member does not accept yamux, over which elrun opens streams: is it an elrun of another version?")
	}
	streams, err := muxer().NewConn(secured, false, nil)
	if err != nil {
		return nil, fmt.Errorf("open streams: %w", err)
	}
	return streams, nil
}
