package p2p

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
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
//	socket      a data stream over a direct connection; unixSocket also passes files
//	localStream a stream within the host (local.go)

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

// fallback is a libp2p stream that serves as the fallback, since no direct connection was made.
type fallback struct {
	*stream
	// why is the reason why there is no direct connection; "" if none was wanted.
	why   string
	ended func(*fallback) // called by Close and Reset
	// cause is the reason that was given to abandon; nil if abandon was not called.
	cause atomic.Pointer[error]
}

// Path implements mesh.Stream.
func (s *fallback) Path() event.Path {
	p := s.stream.Path()
	p.Why = s.why
	return p
}

// Read implements io.Reader.
func (s *fallback) Read(b []byte) (int, error) {
	n, err := s.stream.Read(b)
	return n, s.explain(err)
}

// Write implements io.Writer.
func (s *fallback) Write(b []byte) (int, error) {
	n, err := s.stream.Write(b)
	return n, s.explain(err)
}

// explain returns the reason given to abandon in place of err. Without a call of abandon it returns
// err.
func (s *fallback) explain(err error) error {
	if err != nil {
		if given := s.cause.Load(); given != nil {
			return *given
		}
	}
	return err
}

// abandon resets the stream. From then on reads and writes on this side return why. Only the first
// reason counts.
func (s *fallback) abandon(why error) {
	if s.cause.CompareAndSwap(nil, &why) {
		_ = s.Reset()
	}
}

// Reset implements mesh.Stream.
func (s *fallback) Reset() error {
	s.ended(s)
	return s.stream.Reset()
}

// Close implements mesh.Stream.
func (s *fallback) Close() error {
	s.ended(s)
	return s.stream.Close()
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

// unixSocket is a socket that also passes open files.
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
