package p2p

import (
	"errors"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/transport"
	blankhost "github.com/libp2p/go-libp2p/p2p/host/blank"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/multiformats/go-multiaddr"

	"github.com/elrun/elrun/elastic"
)

// conns has libp2p's connections of a host, and the gate that they pass. The fields are set while
// the host is built and do not change later. All methods are safe for concurrent use.
type conns struct {
	gate  *gate  // which peers may connect
	tasks *tasks // lifetime of the host

	host     *blankhost.BlankHost    // negotiates the protocol of each stream; nil before build
	swarm    *swarm.Swarm            // makes the connections
	limits   network.ResourceManager // bounds the connections and streams of each peer
	upgrader transport.Upgrader      // secures TCP connections and circuits
	// handshakes are those with the own addresses of peers.
	handshakes *handshakes
	// below are the parts of libp2p that release closes, in this order.
	below []io.Closer
	// punches is set if the host tries hole punching. Then its connections over UDP were made by
	// hole punching.
	punches bool
}

// close ends all connections at once. It does nothing if the host was not built so far.
func (c *conns) close() error {
	if c.host == nil {
		return nil
	}
	return c.host.Close()
}

// release closes the parts below the connections, which have ended: limits, peerstore, and QUIC's
// sockets. All are closed, also after an error.
func (c *conns) release() error {
	var errs []error
	for _, part := range c.below {
		errs = append(errs, part.Close())
	}
	return errors.Join(errs...)
}

// hangUp closes a connection in the background, as closing may wait for bytes that the peer does
// not read. When hangUp returns no new stream uses the connection.
func (c *conns) hangUp(conn network.Conn) {
	ended := make(chan struct{})
	began := c.tasks.run(func() {
		defer close(ended)
		_ = conn.Close()
	})
	if !began {
		return // close ends them all
	}
	// Close takes the connection out of use first, without waiting; only later steps can wait.
	timer := time.NewTimer(hangUpTime)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

// hangUpTime is more than enough for the part of Close that does not wait.
const hangUpTime = 50 * time.Millisecond

// hangUpPeer closes all connections with a peer (hangUp), relayed ones included. A later stream to
// the peer makes a new connection, unless the gate forbids that.
func (c *conns) hangUpPeer(id peer.ID) {
	for _, conn := range c.swarm.ConnsToPeer(id) {
		c.hangUp(conn)
	}
}

// hangUpFrom closes the direct connections whose local address is gone. Nothing that is sent from
// such an address is answered, and TCP would go on for many minutes. A relayed connection has no
// local address of its own; it ends with the connection to its relay.
func (c *conns) hangUpFrom(gone func(netip.Addr) bool) {
	for _, conn := range c.swarm.Conns() {
		if local, ok := hostOf(conn.LocalMultiaddr()); ok && !isRelayed(conn.RemoteMultiaddr()) && gone(local) {
			c.hangUp(conn)
		}
	}
}

// expel closes the connection of a stranger, unless its peer was admitted meanwhile.
func (c *conns) expel(conn network.Conn) {
	if !c.gate.isMember(conn.RemotePeer()) {
		c.hangUp(conn)
	}
}

// onlyRelayed reports whether there are connections with a peer and all of them are relayed. It is
// false for a peer without connections: such a peer is dialled at all its addresses first.
func (c *conns) onlyRelayed(id peer.ID) bool {
	all := c.swarm.ConnsToPeer(id)
	return len(all) > 0 && !slices.ContainsFunc(all, func(conn network.Conn) bool { return !isRelayed(conn.RemoteMultiaddr()) })
}

// isPunched reports whether hole punching made a connection. No direct connection is possible
// beside such a connection.
func (c *conns) isPunched(conn network.Conn) bool {
	return c.punches && udpOf(conn.RemoteMultiaddr()).IsValid()
}

// isAdvertised reports whether a may be advertised as an address of a host. Relayed addresses may
// not, nor the UDP addresses of hole punching, which only the puncher sends.
func (c *conns) isAdvertised(a multiaddr.Multiaddr) bool {
	return !isRelayed(a) && (!c.punches || !udpOf(a).IsValid())
}

// insiders returns the members of a view, and the relays by which this host is connected with them:
// bytes that come through a relay are the members'.
func (c *conns) insiders(v elastic.View) []peer.ID {
	var all []peer.ID
	for _, m := range v.Members {
		id, err := c.gate.decode(m.ID)
		if err != nil {
			continue // no peer has such an ID
		}
		all = append(all, id)
		for _, conn := range c.swarm.ConnsToPeer(id) {
			if by, ok := relayOf(conn.RemoteMultiaddr()); ok {
				all = append(all, by)
			}
		}
	}
	return all
}
