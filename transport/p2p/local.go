package p2p

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/mesh"
)

// HostKeySize is the length in bytes of the key that the peers of a launcher share (UseHostKey).
const HostKeySize = direct.KeySize

// errNotLocal means that the peer is not of this host and launcher, as far as this host knows.
var errNotLocal = errors.New("this host has no Unix socket of the peer")

// local makes streams to other processes of this host and launcher, without libp2p connections. The
// first dial shows whether a peer is local: a process opens its socket before any other peer learns
// its ID, and the socket exists in no other network namespace. The methods of a nil local treat no
// peer as local.
type local struct {
	port *direct.Port // the host closes it, after local
	gate *gate

	// mu guards the fields below.
	mu     sync.Mutex
	closed bool
	// peers has the peers that this host has dialled, and those that have dialled this host.
	peers   map[elastic.ID]locality
	streams map[*direct.Conn]hostStream // open streams
}

// hostStream says whose stream a connection within the host is.
type hostStream struct {
	peer elastic.ID
	kind mesh.Kind
}

// locality says whether a peer is local, as far as this host knows.
type locality byte

const (
	unknownHost locality = iota // not known yet
	sameHost                    // the peer has accepted or opened a stream within the host
	otherHost
)

// serve accepts streams of processes with the same key, and passes them to take, each in a
// goroutine of its own. A key of another length than HostKeySize is ignored, and so is a second
// call. Before serve is called, open returns errNotLocal.
func (l *local) serve(key []byte, take func(mesh.Kind, mesh.Stream)) {
	if l == nil || len(key) != HostKeySize {
		return
	}
	l.port.ServeHost(&direct.Host{Key: [HostKeySize]byte(key), Admit: l.admit, Take: func(c *direct.Conn, from string, kind byte) {
		s := hostStream{elastic.ID(from), mesh.Kind(kind)}
		if st, err := l.streamOf(c, s); err == nil {
			take(s.kind, st)
		}
	}})
}

// admit returns 0 if a stream of the peer is accepted, or else the reason of the refusal. The peer
// has proven that it holds the key, but not its ID: all processes with the key trust each other.
// The gate decides as for connections of libp2p.
func (l *local) admit(from string) direct.Refusal {
	id, err := l.gate.decode(elastic.ID(from))
	switch {
	case err == nil && l.gate.isBanned(id):
		return direct.Banned
	case err != nil || !l.gate.isMember(id):
		return direct.Unknown
	}
	l.gate.markReached(id, nil)
	l.note(elastic.ID(from), sameHost)
	return 0
}

// open opens a stream to a peer within the host, which the peer has accepted. After errNotLocal the
// caller uses libp2p.
func (l *local) open(ctx context.Context, to elastic.ID, k mesh.Kind) (mesh.Stream, error) {
	if l == nil || l.localityOf(to) == otherHost {
		return nil, errNotLocal
	}
	c, err := l.port.DialHost(ctx, string(to), byte(k))
	if err != nil {
		return nil, l.failed(to, err)
	}
	l.note(to, sameHost)
	return l.streamOf(c, hostStream{to, k})
}

// failed converts the error of a dial to the error for the caller: elastic.ErrGone for a local peer
// whose socket is gone, errNotLocal for a peer that is to be reached by libp2p, mesh.ErrBanned if
// this host was put out. After any other error the caller tries again.
func (l *local) failed(to elastic.ID, err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED) && l.localityOf(to) == sameHost:
		return fmt.Errorf("%w: %w", elastic.ErrGone, err)
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, direct.ErrProof):
		// The peer is on another host, in another network namespace, or of another launcher, for
		// its whole life.
		l.note(to, otherHost)
		return errNotLocal
	case errors.Is(err, direct.ErrNoKey): // UseHostKey was not called, or not yet
		return errNotLocal
	case errors.Is(err, direct.Banned):
		l.note(to, sameHost)
		return mesh.ErrBanned
	case errors.Is(err, direct.Unknown):
		l.note(to, sameHost)
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

// streamOf returns the mesh.Stream over a connection within the host, which is in streams until it
// ends. It fails if the host is closed.
func (l *local) streamOf(c *direct.Conn, s hostStream) (mesh.Stream, error) {
	if s.kind != mesh.Data {
		c.Sleep()
	}
	c.OnEnd(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.streams, c)
	})
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.streams[c] = s
	}
	l.mu.Unlock()
	if closed {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	return unixSocket{socket{c, s.peer, event.Path{Kind: "unix"}}, c}, nil
}

// end ends the streams that the function which selects.
func (l *local) end(which func(hostStream) bool) {
	l.mu.Lock()
	var all []*direct.Conn
	for c, s := range l.streams {
		if which(s) {
			all = append(all, c)
		}
	}
	l.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

// hangUp ends the streams with a peer except the data streams. Each data stream has a socket of its
// own, so its blocked bytes delay no other stream.
func (l *local) hangUp(id elastic.ID) {
	if l != nil {
		l.end(func(s hostStream) bool { return s.peer == id && s.kind != mesh.Data })
	}
}

// forget ends all streams with a peer.
func (l *local) forget(id elastic.ID) {
	if l != nil {
		l.end(func(s hostStream) bool { return s.peer == id })
	}
}

// close ends all streams, and those that come later.
func (l *local) close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.end(func(hostStream) bool { return true })
}
