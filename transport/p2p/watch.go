package p2p

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/elrun/elrun/internal/netwatch"
	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/mesh"
)

// A direct connection may stop working while a view lasts. The watch detects that
//
//   - nothing that is sent is acknowledged (direct.Conn.Stuck), though the peer answers a ping: a cable was
//     pulled, or long packets are lost where short ones pass;
//   - the local address of the connection is gone.
//
// The watch then gives the connection up with mesh.ErrPath, which blames no member. The members
// form a view with the same members, whose new connections take another path. Interrupted calls are
// repeated.
const (
	// watchEvery is the period of the checks.
	watchEvery = 500 * time.Millisecond
	// pingTime is how long a peer may take to answer a ping.
	pingTime = 1500 * time.Millisecond
)

// watchList has the direct connections of a host that the watch checks. All methods are safe for
// concurrent use. A connection is added when the two sides have chosen it for a data stream, and
// removed when it ends.
type watchList struct {
	wake chan struct{} // capacity 1; receives a value when a connection was added

	// mu guards the field below.
	mu    sync.Mutex
	conns map[*direct.Conn]peer.ID
}

// newWatchList returns a list without connections.
func newWatchList() *watchList {
	return &watchList{wake: make(chan struct{}, 1), conns: make(map[*direct.Conn]peer.ID)}
}

// add adds a direct TCP connection, until it ends.
func (w *watchList) add(c *direct.Conn, id peer.ID) {
	if local, _ := c.Ends(); !local.IsValid() {
		return // Unix sockets need no watch
	}
	w.mu.Lock()
	c.OnEnd(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.conns, c)
	})
	w.conns[c] = id
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// all returns the connections and their peers.
func (w *watchList) all() map[*direct.Conn]peer.ID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.conns)
}

// watch checks the connections of its list. All methods are safe for concurrent use. The checks run
// in rounds: each connection has a goroutine, and the next round begins when all goroutines have
// ended.
type watch struct {
	*dialer

	list   *watchList
	routes *routes // is told of targets that do not answer, and of addresses to which long packets are lost
}

// run checks the connections every watchEvery until the host closes, and calls changed after each
// change of this host's addresses or interfaces. It sleeps while there are no connections.
func (w *watch) run(changed func()) {
	changes := make(<-chan struct{}) // never ready where the system does not report changes
	if n, err := netwatch.Open(); err == nil {
		defer n.Close()
		changes = n.Changes()
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		due := tick.C
		if len(w.list.all()) == 0 {
			due = nil
		}
		select {
		case <-w.tasks.closed():
			return
		case <-changes:
			changed()
		case <-w.list.wake:
		case <-due:
			w.check()
		}
	}
}

// check checks all connections.
func (w *watch) check() {
	var checking sync.WaitGroup
	for c, id := range w.list.all() {
		checking.Go(func() {
			if c.Stuck() {
				w.abandonStuck(c, id)
			}
		})
	}
	checking.Wait()
}

// leave gives up the connections whose local address is gone.
func (w *watch) leave(gone func(netip.Addr) bool) {
	for c := range w.list.all() {
		if local, _ := c.Ends(); gone(local) {
			c.GiveUp(fmt.Errorf("%w: %s is no address of this host any more", mesh.ErrPath, local))
		}
	}
}

// abandonStuck gives up a connection on which nothing is acknowledged, if the peer answers a ping.
// If the peer does not answer, the failure detection of the members decides.
func (w *watch) abandonStuck(c *direct.Conn, id peer.ID) {
	_, remote := c.Ends()
	// The first ping may take the stuck path, too. Then libp2p's connections on that path are
	// closed, and the second ping uses another path.
	at, err := w.ping(id, pingTime/4)
	if err != nil {
		for _, conn := range w.swarm.ConnsToPeer(id) {
			if ip, ok := hostOf(conn.RemoteMultiaddr()); ok && ip == remote {
				w.hangUp(conn) // this connection takes the same path
			}
		}
		at, err = w.ping(id, pingTime)
	}
	if err != nil {
		return
	}
	why := fmt.Sprintf("%s acknowledges nothing", remote)
	if at == remote { // the ping, a short packet, has passed where data does not
		why = fmt.Sprintf("packets to %s are lost and short ones pass: if the network loses only long ones, lower the MTU of the interface, or of the tunnel on the way", remote)
		w.routes.bound(remote)
	} else if to := c.Target(); to != (direct.Target{}) {
		w.routes.markSilent(to)
	}
	w.routes.forget()
	c.GiveUp(fmt.Errorf("%w: %s", mesh.ErrPath, why))
}

// ping checks that a member is alive: the member accepts a new stream. No part of the member but libp2p
// has to do anything for that. It returns the remote address of the connection that was used, which may be
// a new connection.
func (w *watch) ping(id peer.ID, within time.Duration) (at netip.Addr, err error) {
	ctx, cancel := context.WithTimeout(w.tasks.life, within)
	defer cancel()
	err = w.retry(ctx, id, func(ctx context.Context) error {
		s, err := w.open(ctx, id, questionProtocol)
		if err == nil {
			err = w.confirm(ctx, s)
		}
		if err != nil {
			return err
		}
		_ = s.Reset() // without a question
		at, _ = hostOf(s.Conn().RemoteMultiaddr())
		return nil
	})
	return at, err
}
