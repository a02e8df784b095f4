package p2p

import (
	"net"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	manet "github.com/multiformats/go-multiaddr/net"
)

// These bounds limit what strangers can use. When a bound is reached, a new connection evicts the
// oldest one. A newcomer with a ticket sends its request at once, so strangers that send nothing do
// not keep the newcomer out.
const (
	// strangerTime is how long a stranger may take to prove its right to join. It leaves room for
	// hosts with many more peers than processors, where a proof that times out must start again.
	strangerTime = handshakeTime
	// maxStrangers is the number of connections of strangers at a time.
	maxStrangers = 256
	// maxPerIP is the number of such connections that may come from one address that is not
	// loopback.
	maxPerIP = 64
)

// strangers holds the unauthenticated connections: the peer ID is proven, the right to join is not.
// All methods are safe for concurrent use.
//
// A connection leaves the list after strangerTime, or when it is evicted. expel then closes the
// connection, unless the peer was admitted meanwhile. A connection that ends earlier stays in the
// list until then.
type strangers struct {
	expel func(network.Conn) // closes the connection unless its peer was admitted meanwhile

	// mu guards the fields below.
	mu     sync.Mutex
	conns  []*stranger // oldest first
	closed bool        // no connection is added any more
}

// stranger is one unauthenticated connection.
type stranger struct {
	conn network.Conn
	ip   net.IP // nil if on loopback or unknown
	// leave is the timer that removes the stranger and closes its connection.
	leave *time.Timer
	// opened is set once the stranger has opened the one stream that it may open.
	opened bool
}

// add adds a connection, and evicts an older one if there is no room.
func (s *strangers) add(c network.Conn) {
	g := &stranger{conn: c}
	if a := c.RemoteMultiaddr(); !manet.IsIPLoopback(a) {
		g.ip, _ = manet.ToIP(a) // nil, and so without a limit per address, if there is no IP address
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return // all connections are being closed
	}
	if old := s.tooManyLocked(g); old != nil {
		old.leave.Reset(0)
		s.removeLocked(old)
	}
	g.leave = time.AfterFunc(strangerTime, func() {
		s.mu.Lock()
		s.removeLocked(g)
		s.mu.Unlock()
		s.expel(c)
	})
	s.conns = append(s.conns, g)
}

// tooManyLocked returns the connection to evict for g, or nil: the oldest connection from g's
// address if there are maxPerIP of them, or the oldest of all connections if there are
// maxStrangers.
func (s *strangers) tooManyLocked(g *stranger) *stranger {
	var same []*stranger
	for _, o := range s.conns {
		if g.ip != nil && o.ip.Equal(g.ip) {
			same = append(same, o)
		}
	}
	// conns is in the order of arrival, and so is same.
	if len(same) >= maxPerIP {
		return same[0]
	}
	if len(s.conns) >= maxStrangers {
		return s.conns[0]
	}
	return nil
}

// removeLocked removes g, if it is still there.
func (s *strangers) removeLocked(g *stranger) {
	s.conns = slices.DeleteFunc(s.conns, func(o *stranger) bool { return o == g })
}

// mayOpenStream reports whether c may open a stream: only the first one of an unauthenticated
// connection may. The reader of that stream accepts a proof and nothing else. A connection that has
// left the list may open no stream.
func (s *strangers) mayOpenStream(c network.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.conns {
		if g.conn == c {
			first := !g.opened
			g.opened = true
			return first
		}
	}
	return false
}

// close stops the timers. The host closes the connections. A timer that has fired already may still
// call expel, which begins no task after tasks.stop.
func (s *strangers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, g := range s.conns {
		g.leave.Stop()
	}
	s.conns = nil
}
