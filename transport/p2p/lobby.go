package p2p

import (
	"net"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	manet "github.com/multiformats/go-multiaddr/net"
)

// What strangers may take. Whoever comes when the lobby is full takes the place of the
// one that has been there longest: a newcomer that holds a ticket shows it at once, so a
// crowd that only waits does not keep it out.
const (
	// lobbyTime is how long a stranger may take to prove itself.
	lobbyTime = 3 * time.Second
	// maxStrangers is how many there may be at a time.
	maxStrangers = 256
	// maxPerIP is how many of them may come from one address that is not loopback.
	maxPerIP = 64
)

// lobby holds the connections of those that have not proven themselves.
type lobby struct {
	expel func(network.Conn) // closes the connection if it is still a stranger's

	mu     sync.Mutex
	guests []*guest // longest first
	closed bool
}

// guest is one connection in the lobby.
type guest struct {
	conn  network.Conn
	ip    net.IP      // nil if on loopback or unknown
	leave *time.Timer // runs out in a goroutine of its own, which ends the stay
	spoke bool        // it has opened a stream, and has no other
}

// enter takes in a connection.
func (l *lobby) enter(c network.Conn) {
	g := &guest{conn: c}
	if a := c.RemoteMultiaddr(); !manet.IsIPLoopback(a) {
		g.ip, _ = manet.ToIP(a) // nil, and not told apart, if it is no IP address
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

// tooManyLocked returns who must go for g to come in, or nil.
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

// removeLocked takes g out, if it is in.
func (l *lobby) removeLocked(g *guest) {
	l.guests = slices.DeleteFunc(l.guests, func(o *guest) bool { return o == g })
}

// speak reports whether c may have a stream: the first one only.
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

// close stops the timers. The connections are closed with the host.
func (l *lobby) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, g := range l.guests {
		g.leave.Stop()
	}
	l.guests = nil
}
