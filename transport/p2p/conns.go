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

// conns has the libp2p connections of a host, and the gate that admits their peers. The fields are
// set while the host is built and do not change later. All methods are safe for concurrent use.
type conns struct {
	gate  *gate  // which peers may connect
	tasks *tasks // lifetime of the host

	host     *blankhost.BlankHost    // negotiates the protocol of each stream; nil before build
	swarm    *swarm.Swarm            // makes the connections
	limits   network.ResourceManager // bounds the connections and streams of each peer
	upgrader transport.Upgrader      // secures TCP connections and circuits
	// handshakes has the outbound handshakes in progress.
	handshakes *handshakes
	// below has the parts of libp2p that release closes, in this order.
	below []io.Closer
}

// close ends all connections at once. It does nothing if build has failed before it made c.host.
func (c *conns) close() error {
	if c.host == nil {
		return nil
	}
	return c.host.Close()
}

// release closes the parts that the connections have used: limits, peerstore, and QUIC's sockets.
// The connections have ended before. An error does not keep release from closing the other parts.
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
		return // the host closes, and so ends all connections
	}
	// conn.Close first removes the connection from the swarm, without waiting; only its later steps
	// can wait.
	timer := time.NewTimer(hangUpTime)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

// hangUpTime is more than enough for the first step of conn.Close, which does not wait.
const hangUpTime = 50 * time.Millisecond

// hangUpPeer closes all connections with a peer (hangUp), relayed ones included. A later stream to
// the peer makes a new connection, unless the gate forbids that.
func (c *conns) hangUpPeer(id peer.ID) {
	for _, conn := range c.swarm.ConnsToPeer(id) {
		c.hangUp(conn)
	}
}

// hangUpFrom closes the direct connections whose local address is gone. Packets from such an
// address get no answer, and TCP would retransmit them for many minutes. A relayed connection has
// no local address of its own; it ends with the connection to its relay.
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

// isPunched reports whether hole punching made a connection: all connections over UDP are its. The
// peer of such a connection cannot be reached by TCP, so no direct connection is possible.
func isPunched(conn network.Conn) bool {
	return udpOf(conn.RemoteMultiaddr()).IsValid()
}

// isAdvertised reports whether a may be advertised as an address of a host. Relayed addresses may
// not be advertised. The UDP addresses of hole punching may not either: only the puncher sends
// them.
func isAdvertised(a multiaddr.Multiaddr) bool {
	return !isRelayed(a) && !udpOf(a).IsValid()
}

// insiders returns the members of a view, and the relays through which this host is connected with
// members: bytes that arrive from such a relay are sent by a member.
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
