package p2p

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/elrun/elrun/internal/netwatch"
	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/mesh"
)

// A direct connection may stop being the best path while a view lasts. The watch detects that
//
//   - nothing that is sent is acknowledged (direct.Progress), though the peer answers a ping: a cable was
//     pulled, or long packets are lost where short ones pass;
//   - the local address of the connection is gone;
//   - another address of the peer is clearly faster, or answers again.
//
// The watch then gives the connection up with mesh.ErrPath, which blames no member. The members
// form a view with the same members, whose new connections take the better path. Interrupted calls
// are repeated.
const (
	// watchEvery is the period of the checks.
	watchEvery = 500 * time.Millisecond
	// pingTime is how long a peer may take to answer a ping.
	pingTime = 1500 * time.Millisecond
	// measureLimit is the timeout of a comparison, at both sides.
	measureLimit = 10 * time.Second
	// inUse is the number of bytes that a connection must carry between two comparisons for the
	// next comparison to be worth its cost.
	inUse = 1 << 20
)

// watch checks the connections of its list. All methods are safe for concurrent use.
//
// Checks for stuck connections run in rounds: each connection has a goroutine, and the next round
// begins when all goroutines have ended. Another goroutine compares addresses, one peer after the
// other: two measurements would share the links. It may take long, as an address that drops packets
// takes a timeout, and no round waits for it.
type watch struct {
	*dialer

	list      *watchList
	paths     *paths
	comparing sync.Mutex // held while a goroutine compares addresses
}

// run checks the connections every watchEvery until the host closes, and calls changed after each
// change of this host's addresses or interfaces. It sleeps while there are no connections and no
// fallback streams.
func (w *watch) run(changed func()) {
	changes := make(<-chan struct{}) // never ready where the system does not report changes
	if n, err := netwatch.Open(); err == nil {
		defer n.Close()
		changes = n.Changes()
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var comparing sync.WaitGroup
	defer comparing.Wait()
	for {
		select {
		case <-w.tasks.closed():
			return
		case <-changes:
			changed()
		case <-tick.C:
		}
		if w.list.empty() {
			select {
			case <-w.tasks.closed():
				return
			case <-changes:
				changed()
			case <-w.list.wake:
			}
			continue
		}
		all := w.list.all()
		if w.comparing.TryLock() {
			comparing.Go(func() {
				defer w.comparing.Unlock()
				w.compareDue(all, w.list.due(time.Now()))
			})
		}
		var checking sync.WaitGroup
		for _, one := range all {
			checking.Go(func() {
				if one.conn.Progress().Stuck {
					w.abandonStuck(one)
				}
			})
		}
		checking.Wait()
	}
}

// leave gives up the connections whose local address is gone, and compares the addresses of all
// others soon. The goroutine of run calls it.
func (w *watch) leave(gone func(netip.Addr) bool) {
	for _, one := range w.list.all() {
		one.changed.Store(true)
		if local, _ := one.conn.Ends(); gone(local) {
			one.conn.GiveUp(fmt.Errorf("%w: %s is no address of this host any more", mesh.ErrPath, local))
		}
	}
}

// compareDue compares the addresses of the peers whose comparison is due, if their connections were
// in use, and tries to replace the fallback streams of due. The caller holds comparing.
func (w *watch) compareDue(all []*watched, due []*fallback) {
	for _, one := range all {
		if one.conn.Target() == (direct.Target{}) { // the other side has dialled, and compares
			continue
		}
		if one.changed.Swap(false) {
			one.next, one.pause = time.Now(), compareFirst
		}
		if time.Now().Before(one.next) {
			continue
		}
		p := one.conn.Progress()
		if p.Arrived-one.arrived < inUse {
			continue
		}
		// The rate counts only the time in which bytes were in flight, so pauses of the job do not
		// lower it.
		rate := float64(p.Arrived-one.arrived) / max(p.Busy-one.busy, time.Millisecond).Seconds()
		one.arrived, one.busy = p.Arrived, p.Busy
		w.compareAddrs(one, rate)
	}
	for _, s := range due {
		w.retryDirect(s)
	}
}

// abandonStuck gives up a connection on which nothing is acknowledged, if the peer answers a ping.
// If the peer does not answer, the failure detection of the members decides.
func (w *watch) abandonStuck(one *watched) {
	_, remote := one.conn.Ends()
	// The first ping may take the stuck path, too. Then libp2p's connections on that path are
	// closed, and the second ping uses another path.
	at, err := w.ping(one.id, pingTime/4)
	if err != nil {
		for _, c := range w.swarm.ConnsToPeer(one.id) {
			if ip, ok := hostOf(c.RemoteMultiaddr()); ok && ip == remote {
				w.hangUp(c) // this connection takes the same path
			}
		}
		at, err = w.ping(one.id, pingTime)
	}
	if err != nil {
		return
	}
	why := fmt.Sprintf("%s acknowledges nothing", remote)
	if at == remote { // the ping, a short packet, has passed where data does not
		why = fmt.Sprintf("long packets to %s are lost and short ones pass: lower the MTU of the interface, or of the tunnel on the way", remote)
		w.paths.routes.bound(remote)
	} else if to := one.conn.Target(); to != (direct.Target{}) {
		w.paths.routes.markSilent(to)
	}
	w.paths.routes.forget()
	one.conn.GiveUp(fmt.Errorf("%w: %s", mesh.ErrPath, why))
}

// compareAddrs measures the addresses of a peer, and gives the connection up if another address is
// clearly faster. rate is the recent throughput of the connection in bytes per second. The
// measurement shares the link with the traffic of the connection, which makes the current address
// look slower than it is; so for this address the greater of the measured rate and rate counts.
func (w *watch) compareAddrs(one *watched, rate float64) {
	ctx, cancel := context.WithTimeout(w.tasks.life, measureLimit)
	defer cancel()
	_, remote := one.conn.Ends()
	ips := w.paths.addrsOf(one.id, remote)
	if len(ips) == 1 { // nothing to compare; the peer may announce more addresses later
		one.next = time.Now().Add(compareLast)
		return
	}
	all, at, err := w.survey(ctx, one.id, ips)
	now := slices.Index(at, remote)
	if err != nil || now < 0 || all[now].Err != nil {
		one.next = time.Now().Add(compareFirst)
		return
	}
	all[now].Speed.Rate = max(all[now].Speed.Rate, rate) // its own traffic has slowed the measurement
	best := direct.Fastest(all)
	if one.shouldChange(all, now, best) {
		w.paths.routes.note(routeKey(at), fastestOf(all, at))
		one.conn.GiveUp(fmt.Errorf("%w: %s", mesh.ErrPath, formatRates(all, at, best)))
	}
}

// retryDirect gives up a fallback stream if the peer's direct port can be reached by now. It also
// caches the fastest address, which the next view dials first.
func (w *watch) retryDirect(s *fallback) {
	ctx, cancel := context.WithTimeout(w.tasks.life, measureLimit)
	defer cancel()
	reached, ok := hostOf(s.Conn().RemoteMultiaddr())
	if !ok {
		return
	}
	id := s.Conn().RemotePeer()
	all, at, err := w.survey(ctx, id, w.paths.addrsOf(id, reached))
	if err != nil {
		return
	}
	best := direct.Fastest(all)
	if best < 0 {
		return
	}
	// The address is not dialled while it is marked as silent; it has just answered.
	w.paths.routes.clearSilent(all[best].Target)
	w.paths.routes.note(routeKey(at), fastestOf(all, at))
	s.abandon(fmt.Errorf("%w: %s answers again", mesh.ErrPath, at[best]))
}

// survey asks a peer to accept measurements, and measures the paths to the addresses of ips at
// which the peer's direct port listens. at has these addresses, parallel to all. The stream stays
// open during the measurement, because the peer accepts connections until the stream ends.
func (w *watch) survey(ctx context.Context, id peer.ID, ips []netip.Addr) (all []direct.Surveyed, at []netip.Addr, err error) {
	err = w.exchange(ctx, id, surveyProtocol, func(s *lazyStream) error {
		theirs, err := readOffer(s)
		if err != nil {
			return err
		}
		var targets []direct.Target
		for _, ip := range ips {
			if to, ok := theirs.ByTCP(ip); ok {
				targets, at = append(targets, w.paths.routes.withBound(to, ip)), append(at, ip)
			}
		}
		all = direct.Survey(ctx, targets, theirs.Ticket)
		return nil
	})
	return all, at, err
}

// acceptSurvey lets a member measure this host until the member resets the stream. wait is only for
// measurements: nothing waits for its result, and Cancel closes the connections that have arrived.
func (w *watch) acceptSurvey(s network.Stream) {
	defer s.Reset()
	if w.paths.listener.port == nil || s.SetDeadline(time.Now().Add(measureLimit)) != nil {
		return
	}
	t := direct.NewTicket()
	wait := w.paths.listener.port.Expect(t, nil)
	defer wait.Cancel()
	if _, err := s.Write(appendOffer(nil, w.paths.offer(t))); err == nil {
		waitEnd(s)
	}
}

// ping checks that a member is alive: it sends a byte on a new stream, and the member sends the
// byte back. It returns the remote address of the connection that was used, which may be a new
// connection.
func (w *watch) ping(id peer.ID, within time.Duration) (at netip.Addr, err error) {
	ctx, cancel := context.WithTimeout(w.tasks.life, within)
	defer cancel()
	err = w.retry(ctx, id, func(ctx context.Context) error {
		return w.exchange(ctx, id, pingProtocol, func(s *lazyStream) error {
			if _, err := s.Write([]byte{0}); err != nil {
				return err
			}
			if _, err := io.ReadFull(s, make([]byte, 1)); err != nil {
				return err
			}
			at, _ = hostOf(s.Conn().RemoteMultiaddr())
			return nil
		})
	})
	return at, err
}

// acceptPing answers a ping. It calls no other part, so it answers even while other parts are
// blocked: a ping tests only the process and the path.
func (w *watch) acceptPing(s network.Stream) {
	defer s.Reset()
	var b [1]byte
	if s.SetDeadline(time.Now().Add(bookTime)) != nil {
		return
	}
	if _, err := io.ReadFull(s, b[:]); err == nil {
		if _, err = s.Write(b[:]); err == nil {
			waitEnd(s)
		}
	}
}
