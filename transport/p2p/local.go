package p2p

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/internal/colocated"
	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/mesh"
)

// HostKeySize is the length in bytes of the key that the peers of a launcher share (UseHostKey).
const HostKeySize = colocated.KeySize

// Codes by which a host refuses streams within its own host.
const (
	unknownCode colocated.Code = 1 + iota // the peer was not introduced, or not yet
	bannedCode                            // the peer was put out
)

var (
	// errNotLocal means that the peer is not of this host and launcher, as far as this host knows.
	errNotLocal = errors.New("this host has no Unix socket of the peer")
	// errUnknown means that this host was not introduced to the peer yet.
	errUnknown = errors.New("the other side does not know this peer yet")
)

// local makes streams to other processes of this host and launcher, without libp2p connections. The
// first dial shows whether a peer is local: a process opens its socket before any other peer learns
// its ID, and the socket exists in no other network namespace. The methods of a nil local treat no
// peer as local.
type local struct {
	socket *colocated.Socket
	gate   *gate

	// mu guards the fields below.
	mu sync.Mutex
	// peers has the peers that this host has dialled, and those that have dialled this host.
	peers map[elastic.ID]locality
}

// locality says whether a peer is local, as far as this host knows.
type locality byte

const (
	unknownHost locality = iota // not known yet
	sameHost                    // the peer has accepted or opened a stream within the host
	otherHost
)

// newLocal opens the Unix socket of a host. It returns nil where the system has no such sockets.
func newLocal(self elastic.ID, g *gate) (*local, error) {
	s, err := colocated.Listen(string(self))
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &local{socket: s, gate: g, peers: make(map[elastic.ID]locality)}, nil
}

// serve accepts streams of processes with the same key, and passes them to take, each in a
// goroutine of its own. A key of another length than HostKeySize is ignored, and so is a second
// call. Before serve is called, open returns errNotLocal.
func (l *local) serve(key []byte, take func(mesh.Kind, mesh.Stream)) {
	if l == nil || len(key) != HostKeySize {
		return
	}
	l.socket.Serve(colocated.Key(key), colocated.Taker{Admit: l.admit,
		Take: func(s *colocated.Stream) { take(mesh.Kind(s.Kind()), newLocalStream(s)) }})
}

// admit returns 0 if a stream of the peer is accepted, or else the code of the refusal. The peer
// has proven that it holds the key, but not its ID: all processes with the key trust each other.
// The gate decides as for connections of libp2p.
func (l *local) admit(from string, _ byte) colocated.Code {
	id, err := l.gate.decode(elastic.ID(from))
	switch {
	case err == nil && l.gate.isBanned(id):
		return bannedCode
	case err != nil || !l.gate.isMember(id):
		return unknownCode
	}
	l.gate.markReached(id, nil)
	l.note(elastic.ID(from), sameHost)
	return 0
}

// open opens a stream to a peer within the host. After errNotLocal the caller uses libp2p.
func (l *local) open(ctx context.Context, to elastic.ID, k mesh.Kind) (mesh.Stream, error) {
	if l == nil || l.localityOf(to) == otherHost {
		return nil, errNotLocal
	}
	s, err := l.socket.Dial(ctx, string(to), byte(k))
	if err == nil && (k == mesh.Control || l.localityOf(to) != sameHost) {
		// confirm detects a peer without the key before any message is sent to the peer.
		if err = confirm(ctx, s); err != nil {
			_ = s.Close()
		}
	}
	if err != nil {
		return nil, l.failed(to, err)
	}
	l.note(to, sameHost)
	return newLocalStream(s), nil
}

// confirm waits until the other side accepts a stream, or ctx ends. The stream is closed if ctx
// ends first.
func confirm(ctx context.Context, s *colocated.Stream) error {
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	err := s.Confirm()
	if !stop() && err == nil || err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// failed converts the error of a dial to the error for the caller: elastic.ErrGone for a local peer
// whose socket is gone, errNotLocal for a peer that is to be reached by libp2p, mesh.ErrBanned if
// this host was put out, errUnknown for another refusal, after which the caller tries again.
func (l *local) failed(to elastic.ID, err error) error {
	var refused *colocated.RefusedError
	switch {
	case errors.Is(err, colocated.ErrAbsent) && l.localityOf(to) == sameHost:
		return fmt.Errorf("%w: %w", elastic.ErrGone, err)
	case errors.Is(err, colocated.ErrAbsent), errors.Is(err, colocated.ErrKey):
		// The peer is on another host, in another network namespace, or of another launcher, for
		// its whole life.
		l.note(to, otherHost)
		return errNotLocal
	case errors.Is(err, colocated.ErrNotServing): // UseHostKey was not called, or not yet
		return errNotLocal
	case errors.As(err, &refused):
		l.note(to, sameHost)
		if refused.Code == bannedCode {
			return mesh.ErrBanned
		}
		return errUnknown
	}
	return err
}

// localityOf returns whether a peer is local.
func (l *local) localityOf(id elastic.ID) locality {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peers[id]
}

// note records whether a peer is local. A peer that was found on this host counts as local for
// good: when its socket is gone its process is gone, and libp2p would not reach it either.
func (l *local) note(id elastic.ID, where locality) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peers[id] != sameHost {
		l.peers[id] = where
	}
}

// hangUp ends the streams with a peer except the data streams. Each data stream has a socket of its
// own, so its blocked bytes delay no other stream.
func (l *local) hangUp(id elastic.ID) {
	if l != nil {
		l.socket.HangUp(string(id), func(k byte) bool { return k != byte(mesh.Data) })
	}
}

// forget ends all streams with a peer.
func (l *local) forget(id elastic.ID) {
	if l != nil {
		l.socket.Forget(string(id))
	}
}

// close closes the socket and ends all streams.
func (l *local) close() error {
	if l == nil {
		return nil
	}
	return l.socket.Close()
}

// localStream is a stream within the host, as a mesh.Stream.
type localStream struct{ *colocated.Stream }

// Peer implements mesh.Stream.
func (l localStream) Peer() elastic.ID { return elastic.ID(l.Stream.Peer()) }

// Path implements mesh.Stream.
func (l localStream) Path() event.Path { return event.Path{Kind: "unix"} }

// Reset implements mesh.Stream.
func (l localStream) Reset() error { return l.Close() }

// localData is a localStream of kind Data. Its bytes go through conn, which also passes files.
type localData struct {
	localStream
	conn *direct.Conn
	// confirmed is set once the peer has accepted the stream. Only the reader uses it.
	confirmed bool
}

// newLocalStream returns the mesh.Stream for a stream of any kind. The result owns s. Only data
// streams pass files and write two slices at once.
func newLocalStream(s *colocated.Stream) mesh.Stream {
	l := localStream{s}
	if mesh.Kind(s.Kind()) != mesh.Data {
		return l
	}
	return &localData{localStream: l, conn: direct.Over(s.Sock())}
}

// Read implements io.Reader.
func (l *localData) Read(b []byte) (int, error) {
	if !l.confirmed {
		if err := l.Confirm(); err != nil {
			return 0, err
		}
		l.confirmed = true
	}
	return l.conn.Read(b)
}

// Write implements io.Writer.
func (l *localData) Write(b []byte) (int, error) { return l.conn.Write(b) }

// WriteTwo implements mesh.TwoWriter.
func (l *localData) WriteTwo(head, body []byte) error { return l.conn.WriteTwo(head, body) }

// SendFiles implements mesh.FilePasser.
func (l *localData) SendFiles(b []byte, files []*os.File) error { return l.conn.SendFiles(b, files) }

// ReceiveFiles implements mesh.FilePasser.
func (l *localData) ReceiveFiles(b []byte) ([]*os.File, error) { return l.conn.ReceiveFiles(b) }
