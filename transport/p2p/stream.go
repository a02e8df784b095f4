package p2p

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/mesh"
)

// The session protocol (package mesh) uses streams, not connections. In this package these types
// implement mesh.Stream:
//
//	stream      a libp2p stream: control, urgent and bulk
//	upgradable  a data stream before the two sides have chosen a path (negotiate.go)
//	fallback    a data stream that stayed a libp2p stream, with the reason
//	socket      a stream over a direct connection: a data stream, or one of any kind within the host
//	            (local.go); unixSocket also passes files

// stream is a libp2p stream as a mesh.Stream.
type stream struct {
	*lazyStream
	after []byte // sent with the first bytes written
}

// Read implements io.Reader.
func (s *stream) Read(b []byte) (int, error) {
	n, err := s.lazyStream.Read(b)
	return n, meshError(err)
}

// Write implements io.Writer. The result counts only the bytes of b.
func (s *stream) Write(b []byte) (int, error) {
	all := b
	if s.after != nil {
		all, s.after = slices.Concat(b, s.after), nil
	}
	n, err := s.lazyStream.Write(all)
	return min(n, len(b)), meshError(err)
}

// meshError wraps libp2p's network.ErrReset in mesh.ErrReset, which tells the mesh that the other
// side has ended the stream on purpose.
func meshError(err error) error {
	if err != nil && errors.Is(err, network.ErrReset) {
		return fmt.Errorf("%w: %w", mesh.ErrReset, err)
	}
	return err
}

// Peer implements mesh.Stream.
func (s *stream) Peer() elastic.ID { return elastic.ID(s.Conn().RemotePeer().String()) }

// Path implements mesh.Stream.
func (s *stream) Path() event.Path {
	addr := s.Conn().RemoteMultiaddr()
	kind := "p2p"
	if isRelayed(addr) {
		kind = "relay"
	}
	return event.Path{Kind: kind, Addr: addr.String(), Encrypted: true}
}

// fallback is a libp2p stream that serves as the fallback, since no direct connection was made. why
// is the reason; "" if none was wanted.
type fallback struct {
	*stream
	why string
}

// Path implements mesh.Stream.
func (f fallback) Path() event.Path {
	p := f.stream.Path()
	p.Why = f.why
	return p
}

// conn is the set of methods of direct.Conn that a socket needs.
type conn interface {
	io.ReadWriteCloser
	mesh.TwoWriter
	CloseWrite() error
	Reset() error
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
}

// socket is a direct connection as a mesh.Stream.
type socket struct {
	conn
	peer elastic.ID
	path event.Path
}

// Peer implements mesh.Stream.
func (s socket) Peer() elastic.ID { return s.peer }

// Path implements mesh.Stream.
func (s socket) Path() event.Path { return s.path }

// unixSocket is a socket within the host, which also passes open files.
type unixSocket struct {
	socket
	mesh.FilePasser
}

// socketOf returns the mesh.Stream over a direct connection with a peer. The parameter why is the
// reason why no better path was taken; "" if this is the best one.
func socketOf(c *direct.Conn, peer elastic.ID, why string) mesh.Stream {
	s := socket{c, peer, event.Path{Kind: c.Kind(), Addr: c.Addr(), Encrypted: c.Encrypted(), Why: why}}
	if c.Kind() == "unix" {
		return unixSocket{s, c}
	}
	return s
}
