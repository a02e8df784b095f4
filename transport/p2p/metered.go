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

// The throttle is applied below libp2p, to whole TCP connections, as reading costs work even for
// frames that belong to no stream. Over circuits only streams and messages are throttled. For hole punching puncher.account charges the packets.
//
// The peer whose bucket pays is known only after the security handshake. libp2p reveals it in two
// places: for an inbound connection to the resource scope (SetPeer), for an outbound one in the
// result of Upgrade. Both call identify.

// meteredUpgrader is libp2p's upgrader with the throttle on each TCP connection. It also records
// outbound handshakes.
type meteredUpgrader struct {
	transport.Upgrader
	throttle   *throttle
	handshakes *handshakes
}

// UpgradeGatedMaListener implements transport.Upgrader.
func (m meteredUpgrader) UpgradeGatedMaListener(t transport.Transport, l transport.GatedMaListener) transport.Listener {
	return m.Upgrader.UpgradeGatedMaListener(t, meteredListener{l, m.throttle})
}

// Upgrade implements transport.Upgrader.
func (m meteredUpgrader) Upgrade(ctx context.Context, t transport.Transport, raw manet.Conn, d network.Direction, id peer.ID,
	scope network.ConnManagementScope) (transport.CapableConn, error) {
	c := newMeteredConn(raw, m.throttle)
	end := m.handshakes.begin(id)
	up, err := m.Upgrader.Upgrade(ctx, t, c, d, id, scope)
	end(err)
	if err == nil {
		c.identify(up.RemotePeer())
	}
	return up, err
}

// meteredListener is a listener whose connections are throttled, from their first byte after the
// handshake on.
type meteredListener struct {
	transport.GatedMaListener
	throttle *throttle
}

// Accept implements transport.GatedMaListener.
func (m meteredListener) Accept() (manet.Conn, network.ConnManagementScope, error) {
	raw, scope, err := m.GatedMaListener.Accept()
	if err != nil {
		return nil, nil, err
	}
	c := newMeteredConn(raw, m.throttle)
	return c, meteredScope{scope, c}, nil
}

// meteredScope is the resource scope of an inbound connection. It passes the peer ID to the
// connection as soon as libp2p knows the ID.
type meteredScope struct {
	network.ConnManagementScope
	conn *meteredConn
}

// SetPeer implements network.ConnManagementScope.
func (m meteredScope) SetPeer(id peer.ID) error {
	m.conn.identify(id)
	return m.ConnManagementScope.SetPeer(id)
}

// meteredConn is a connection whose reads wait while the peer's bucket is in debt. Before the peer
// ID is known only the limits of the handshake apply.
type meteredConn struct {
	manet.Conn
	throttle *throttle
	peer     atomic.Pointer[peer.ID] // nil before identify
	closed   chan struct{}           // closed by close, which ends waits
	close    func()
}

// newMeteredConn returns raw with throttled reads.
func newMeteredConn(raw manet.Conn, t *throttle) *meteredConn {
	c := &meteredConn{Conn: raw, throttle: t, closed: make(chan struct{})}
	c.close = sync.OnceFunc(func() { close(c.closed) })
	return c
}

// identify sets the peer whose bucket pays.
func (m *meteredConn) identify(id peer.ID) { m.peer.Store(&id) }

// Read implements net.Conn. It waits while the peer is in debt, and then charges the bytes and
// readTokens.
func (m *meteredConn) Read(b []byte) (int, error) {
	id := m.peer.Load()
	if id == nil {
		return m.Conn.Read(b)
	}
	m.throttle.wait(*id, m.closed)
	n, err := m.Conn.Read(b)
	m.throttle.pay(*id, n+readTokens)
	return n, err
}

// Write implements net.Conn. The bytes earn tokens for the peer.
func (m *meteredConn) Write(b []byte) (int, error) {
	n, err := m.Conn.Write(b)
	if id := m.peer.Load(); id != nil {
		m.throttle.pay(*id, -n/answerBytes)
	}
	return n, err
}

// Close implements net.Conn. It ends the wait of a reader for tokens; the read then fails.
func (m *meteredConn) Close() error {
	defer m.close()
	return m.Conn.Close()
}
