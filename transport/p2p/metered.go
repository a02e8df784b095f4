package p2p

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/transport"
	manet "github.com/multiformats/go-multiaddr/net"
)

// The throttle is applied below libp2p, to TCP connections as a whole, as also frames that
// no stream is there for cost their reading. QUIC and circuits have it on their streams only.

// meteredUpgrader is libp2p's upgrader of TCP connections, with the throttle on each.
type meteredUpgrader struct {
	transport.Upgrader
	throttle *throttle
}

// UpgradeGatedMaListener implements transport.Upgrader.
func (u meteredUpgrader) UpgradeGatedMaListener(t transport.Transport, l transport.GatedMaListener) transport.Listener {
	return u.Upgrader.UpgradeGatedMaListener(t, meteredListener{l, u.throttle})
}

// Upgrade implements transport.Upgrader.
func (u meteredUpgrader) Upgrade(ctx context.Context, t transport.Transport, raw manet.Conn, d network.Direction, id peer.ID,
	scope network.ConnManagementScope) (transport.CapableConn, error) {
	c := newMeteredConn(raw, u.throttle)
	up, err := u.Upgrader.Upgrade(ctx, t, c, d, id, scope)
	if err == nil {
		c.identify(up.RemotePeer())
	}
	return up, err
}

// meteredListener accepts metered connections.
type meteredListener struct {
	transport.GatedMaListener
	throttle *throttle
}

// Accept implements transport.GatedMaListener.
func (l meteredListener) Accept() (manet.Conn, network.ConnManagementScope, error) {
	raw, scope, err := l.GatedMaListener.Accept()
	if err != nil {
		return nil, nil, err
	}
	c := newMeteredConn(raw, l.throttle)
	return c, meteredScope{scope, c}, nil
}

// meteredScope is the account of a connection that came in, which learns who is there.
type meteredScope struct {
	network.ConnManagementScope
	conn *meteredConn
}

// SetPeer implements network.ConnManagementScope.
func (s meteredScope) SetPeer(id peer.ID) error {
	s.conn.identify(id)
	return s.ConnManagementScope.SetPeer(id)
}

// meteredConn is a connection whose reader waits while the peer is in debt. Before it is
// known who is there the bounds of the handshake hold.
type meteredConn struct {
	manet.Conn
	throttle *throttle
	peer     atomic.Pointer[peer.ID]
	closed   chan struct{}
	close    func()
}

func newMeteredConn(raw manet.Conn, t *throttle) *meteredConn {
	c := &meteredConn{Conn: raw, throttle: t, closed: make(chan struct{})}
	c.close = sync.OnceFunc(func() { close(c.closed) })
	return c
}

// identify says who is there.
func (c *meteredConn) identify(id peer.ID) { c.peer.Store(&id) }

// Read implements net.Conn.
func (c *meteredConn) Read(b []byte) (int, error) {
	id := c.peer.Load()
	if id == nil {
		return c.Conn.Read(b)
	}
	c.throttle.wait(*id, c.closed)
	n, err := c.Conn.Read(b)
	c.throttle.pay(*id, n+readTokens)
	return n, err
}

// Write implements net.Conn.
func (c *meteredConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if id := c.peer.Load(); id != nil {
		c.throttle.pay(*id, -n/answerBytes)
	}
	return n, err
}

// Close implements net.Conn. A reader that waits finds the connection closed.
func (c *meteredConn) Close() error {
	defer c.close()
	return c.Conn.Close()
}
