package p2p

import (
	"net"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	manet "github.com/multiformats/go-multiaddr/net"
)

// The lobby limits what strangers can use. When it is full, a new connection evicts the one that
// has waited longest. A newcomer with a ticket sends its request at once, so a crowd that only
// waits does not keep it out.
const (
	// lobbyTime is how long a stranger may take to prove its right to join.
	lobbyTime = 3 * time.Second
	// maxStrangers is the number of connections of strangers at a time.
	maxStrangers = 256
	// maxPerIP is the number of them that may come from one address that is not loopback.
	maxPerIP = 64
)

// lobby holds the unauthenticated connections: the peer ID is proven, the right to join is not. All
// methods are safe for concurrent use.
type lobby struct {
	expel func(network.Conn) // closes the connection unless its peer was admitted meanwhile

	mu     sync.Mutex
	guests []*guest // oldest first
	closed bool     // no connection is added any more
}

// guest is one connection in the lobby.
type guest struct {
	conn  network.Conn
	ip    net.IP      // nil if on loopback or unknown
	leave *time.Timer // its goroutine removes the guest and closes the connection
	spoke bool        // it has opened its one stream
}

// enter puts a connection into the lobby, and evicts an older one if there is no room.
func (l *lobby) enter(c network.Conn) {
	g := &guest{conn: c}
	if a := c.RemoteMultiaddr(); !manet.IsIPLoopback(a) {
		g.ip, _ = manet.ToIP(a) // nil, without a limit per address, if it is no IP address
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return // all connections are being closed
	}
	if old := l.tooManyLocked(g); old != nil {
		old.leave.Reset(0)
		l.removeLocked(old)
	}
	g.leave = time.AfterFunc(lobbyTime, func() {
		l.mu.Lock()
		l.removeLocked(g)
		l.mu.Unlock()
		l.expel(c)
	})
	l.guests = append(l.guests, g)
}

// tooManyLocked returns the connection to evict for g, or nil: the oldest of g's address if that
// has reached maxPerIP, or the oldest of all if the lobby is full.
func (l *lobby) tooManyLocked(g *guest) *guest {
	var same []*guest
	for _, o := range l.guests {
		if g.ip != nil && o.ip.Equal(g.ip) {
			same = append(same, o)
		}
	}
	if len(same) >= maxPerIP {
		return same[0]
	}
	if len(l.guests) >= maxStrangers {
		return l.guests[0]
	}
	return nil
}

// removeLocked removes g, if it is in the lobby.
func (l *lobby) removeLocked(g *guest) {
	l.guests = slices.DeleteFunc(l.guests, func(o *guest) bool { return o == g })
}

// speak reports whether c may open a stream: only the first one of a connection in the lobby may.
func (l *lobby) speak(c network.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.guests {
		if g.conn == c {
			first := !g.spoke
			g.spoke = true
			return first
		}
	}
	return false
}

// close stops the timers. The host closes the connections.
func (l *lobby) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, g := range l.guests {
		g.leave.Stop()
	}
	l.guests = nil
}
