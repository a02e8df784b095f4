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

	"github.com/elrun/elrun/elastic"
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
	// compareFirst is the initial pause between two comparisons of a peer's addresses, and the
	// pause while one of them does not answer. Each comparison that changes nothing doubles the
	// pause, up to compareLast.
	compareFirst = time.Second
	compareLast  = 30 * time.Second
	// retryFirst is the pause before the first attempt to replace a fallback stream by a direct
	// connection. Each attempt doubles the pause for the peer, up to retryLast, until there is a
	// direct connection.
	retryFirst = 5 * time.Second
	retryLast  = time.Minute
	// inUse is the number of bytes that a connection must carry between two comparisons for the
	// next one to be worth its cost.
	inUse = 1 << 20
	// fasterNow is the factor by which another address must be faster to be taken at once, and
	// fasterTwice the factor at which it is taken after two comparisons in a row (hysteresis).
	fasterNow   = 4
	fasterTwice = 1.5
	// safeMSS is the segment size in bytes that fits the packets of 1,280 bytes that every IPv6
	// path carries (RFC 8200), with room for the headers of a tunnel.
	safeMSS = 1160
)

// watch monitors the direct connections and the fallback streams of a host. All methods are safe
// for concurrent use.
type watch struct {
	wake chan struct{} // capacity 1: there are connections

	mu        sync.Mutex
	watched   map[*direct.Conn]*watched
	fallbacks map[*fallback]time.Time   // fallback streams, and the time of the next attempt to replace each
	pauses    map[peer.ID]time.Duration // next pause between such attempts, over all streams of a peer

	comparing sync.Mutex // held by the goroutine that measures: two measurements would share the links
}

// watched is a monitored connection and its state. One goroutine at a time uses the fields from
// arrived on: the watch's, or the one that it has started for this connection and waits for.
type watched struct {
	conn *direct.Conn
	id   peer.ID

	arrived uint64        // Progress.Arrived at the last comparison, in bytes
	busy    time.Duration // Progress.Busy at the last comparison
	next    time.Time     // time of the next comparison
	pause   time.Duration // pause between that one and the next
	faster  bool          // the last comparison found a faster address
}

// newWatch returns a watch without connections.
func newWatch() *watch {
	return &watch{wake: make(chan struct{}, 1), watched: make(map[*direct.Conn]*watched),
		fallbacks: make(map[*fallback]time.Time), pauses: make(map[peer.ID]time.Duration)}
}

// addFallback adds a fallback stream, which the watch tries to replace until the stream ends.
func (w *watch) addFallback(s *fallback) {
	w.mu.Lock()
	w.fallbacks[s] = time.Now().Add(max(retryFirst, w.pauses[s.Conn().RemotePeer()]))
	w.mu.Unlock()
	w.start()
}

// start wakes the goroutine of the watch.
func (w *watch) start() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// due returns the fallback streams whose next attempt is due, and doubles their pauses. more
// reports whether there are others.
func (w *watch) due(now time.Time) (due []*fallback, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s, next := range w.fallbacks {
		switch id := s.Conn().RemotePeer(); {
		case now.Before(next):
			more = true
		default:
			w.pauses[id] = min(2*max(w.pauses[id], retryFirst), retryLast)
			w.fallbacks[s] = now.Add(w.pauses[id])
			due = append(due, s)
		}
	}
	return due, more
}

// add monitors a direct TCP connection from now until it ends.
func (w *watch) add(c *direct.Conn, id peer.ID) {
	if local, _ := c.Ends(); !local.IsValid() {
		return // Unix sockets need no watch
	}
	w.mu.Lock()
	delete(w.pauses, id)
	c.OnEnd(func() { w.drop(c) })
	w.watched[c] = &watched{conn: c, id: id, pause: compareFirst, next: time.Now().Add(compareFirst)}
	w.mu.Unlock()
	w.start()
}

// drop removes a connection that ends.
func (w *watch) drop(c *direct.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.watched, c)
}

// dropFallback removes a fallback stream that ends.
func (w *watch) dropFallback(s *fallback) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.fallbacks, s)
}

// all returns the monitored connections.
func (w *watch) all() []*watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*watched
	for _, one := range w.watched {
		all = append(all, one)
	}
	return all
}

// watchPaths checks the connections every watchEvery until the host closes. It sleeps while there are
// none.
func (h *Host) watchPaths() {
	changes := make(<-chan struct{}) // never ready where the system does not report changes
	if n, err := netwatch.Open(); err == nil {
		defer n.Close()
		changes = n.Changes()
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-h.done:
			return
		case <-changes:
			h.networkChanged()
		case <-tick.C:
		}
		all := h.watch.all()
		due, more := h.watch.due(time.Now())
		if len(all)+len(due) == 0 && !more {
			select {
			case <-h.done:
				return
			case <-changes:
				h.networkChanged()
			case <-h.watch.wake:
			}
			continue
		}
		var looking sync.WaitGroup
		for _, one := range all {
			looking.Go(func() { h.check(one) })
		}
		for _, s := range due {
			looking.Go(func() { h.retryDirect(s) })
		}
		looking.Wait()
	}
}

// networkChanged handles a change of this host's addresses or interfaces. It drops all
// measurements, ends the connections from addresses that are gone, and sends the members the
// current listen addresses.
func (h *Host) networkChanged() {
	h.routes.forget()
	h.mu.Lock()
	clear(h.silent)
	h.mu.Unlock()
	own := ownAddrs()
	gone := func(ip netip.Addr) bool {
		return ip.IsValid() && !ip.IsUnspecified() && !slices.Contains(own, ip.WithZone("")) // QUIC reports the unspecified address
	}
	for _, one := range h.watch.all() {
		one.next, one.pause = time.Now(), compareFirst
		if local, _ := one.conn.Ends(); gone(local) {
			one.conn.GiveUp(fmt.Errorf("%w: %s is no address of this host any more", mesh.ErrPath, local))
		}
	}
	for _, c := range h.swarm.Conns() {
		if local, ok := hostOf(c.LocalMultiaddr()); ok && !isRelayed(c.RemoteMultiaddr()) && gone(local) {
			h.hangUp(c)
		}
	}
	if h.begin() {
		go func() {
			defer h.working.Done()
			h.announceAddrs()
		}()
	}
}

// announceAddrs sends all members the listen addresses of this host. The exchange also makes a new
// connection with the members whose connection was from an address that is gone.
func (h *Host) announceAddrs() {
	ctx, cancel := context.WithTimeout(h.life, bookTime)
	defer cancel()
	turns := make(chan struct{}, maxFirstDials)
	var asking sync.WaitGroup
	for _, id := range h.gate.all() {
		asking.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			_, _ = h.Exchange(ctx, elastic.ID(id.String()), false) // after an error: members ask, too, when they look for this host
		})
	}
	asking.Wait()
}

// check checks one connection: it gives up a stuck one, and compares the peer's addresses when that
// is due and the connection was in use.
func (h *Host) check(one *watched) {
	p := one.conn.Progress()
	if p.Stuck {
		h.abandonStuck(one)
		return
	}
	if one.conn.Target() == (direct.Target{}) || time.Now().Before(one.next) || p.Arrived-one.arrived < inUse {
		return
	}
	rate := float64(p.Arrived-one.arrived) / max(p.Busy-one.busy, time.Millisecond).Seconds()
	one.arrived, one.busy = p.Arrived, p.Busy
	h.compareAddrs(one, rate)
}

// abandonStuck gives up a connection on which nothing is acknowledged, if the peer answers a ping. A
// peer that does not answer is left to the failure detection of the members.
func (h *Host) abandonStuck(one *watched) {
	_, remote := one.conn.Ends()
	at, err := h.ping(one.id, pingTime/4)
	if err != nil {
		for _, c := range h.swarm.ConnsToPeer(one.id) {
			if ip, ok := hostOf(c.RemoteMultiaddr()); ok && ip == remote {
				h.hangUp(c) // it takes the same path
			}
		}
		at, err = h.ping(one.id, pingTime)
	}
	if err != nil {
		return
	}
	why := fmt.Sprintf("%s acknowledges nothing", remote)
	if at == remote {
		why = fmt.Sprintf("long packets to %s are lost and short ones pass: its MTU or that of a tunnel is too large", remote)
		h.routes.bound(remote)
	} else if to := one.conn.Target(); to != (direct.Target{}) {
		h.markSilent(to)
	}
	h.routes.forget()
	one.conn.GiveUp(fmt.Errorf("%w: %s", mesh.ErrPath, why))
}

// compareAddrs measures the addresses of a peer, and gives the connection up if another address is
// clearly faster. rate is the recent throughput of the connection in bytes per second.
func (h *Host) compareAddrs(one *watched, rate float64) {
	h.watch.comparing.Lock()
	defer h.watch.comparing.Unlock()
	ctx, cancel := context.WithTimeout(h.life, measureLimit)
	defer cancel()
	_, remote := one.conn.Ends()
	ips := h.addrsOf(one.id, remote)
	if len(ips) == 1 {
		one.next = time.Now().Add(compareLast)
		return
	}
	all, at, err := h.survey(ctx, one.id, ips)
	now := slices.Index(at, remote)
	if err != nil || now < 0 || all[now].Err != nil {
		one.next = time.Now().Add(compareFirst)
		return
	}
	all[now].Speed.Rate = max(all[now].Speed.Rate, rate) // its own traffic has slowed the measurement
	best := direct.Fastest(all)
	if one.shouldChange(all, now, best) {
		h.routes.note(routeKey(at), fastestOf(all, at))
		one.conn.GiveUp(fmt.Errorf("%w: %s", mesh.ErrPath, formatRates(all, at, best)))
	}
}

// retryDirect gives up a fallback stream if the peer's direct port can be reached by now.
func (h *Host) retryDirect(s *fallback) {
	h.watch.comparing.Lock()
	defer h.watch.comparing.Unlock()
	ctx, cancel := context.WithTimeout(h.life, measureLimit)
	defer cancel()
	reached, ok := hostOf(s.Conn().RemoteMultiaddr())
	if !ok {
		return
	}
	id := s.Conn().RemotePeer()
	all, at, err := h.survey(ctx, id, h.addrsOf(id, reached))
	if err != nil {
		return
	}
	best := direct.Fastest(all)
	if best < 0 {
		return
	}
	h.clearSilent(all[best].Target)
	h.routes.note(routeKey(at), fastestOf(all, at))
	s.abandon(fmt.Errorf("%w: %s answers again", mesh.ErrPath, at[best]))
}

// shouldChange decides after a comparison whether to change from address now to address best, both
// indices of all. It also sets the time of the next comparison.
func (one *watched) shouldChange(all []direct.Surveyed, now, best int) bool {
	failed := slices.ContainsFunc(all, func(s direct.Surveyed) bool { return s.Err != nil })
	before := one.faster
	one.faster = all[best].Speed.Clearly(all[now].Speed, fasterTwice)
	if failed || one.faster {
		one.pause = compareFirst
	} else {
		one.pause = min(2*one.pause, compareLast)
	}
	one.next = time.Now().Add(one.pause)
	return one.faster && (before || all[best].Speed.Clearly(all[now].Speed, fasterNow))
}

// survey asks a peer to accept measurements, and measures those of the addresses at which the
// peer's direct port listens. at has their addresses, parallel to all.
func (h *Host) survey(ctx context.Context, id peer.ID, ips []netip.Addr) (all []direct.Surveyed, at []netip.Addr, err error) {
	s, err := h.open(ctx, id, surveyProtocol)
	if err != nil {
		return nil, nil, err
	}
	defer s.Reset()
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	defer stop()
	theirs, err := readOffer(s)
	if err != nil {
		return nil, nil, err
	}
	var targets []direct.Target
	for _, ip := range ips {
		if to, ok := theirs.ByTCP(ip); ok {
			targets, at = append(targets, h.routes.withBound(to, ip)), append(at, ip)
		}
	}
	return direct.Survey(ctx, targets, theirs.Ticket), at, nil
}

// acceptSurvey lets a member measure this host until the member resets the stream.
func (h *Host) acceptSurvey(s network.Stream) {
	defer s.Reset()
	if h.port == nil || s.SetDeadline(time.Now().Add(measureLimit)) != nil {
		return
	}
	t := direct.NewTicket()
	w := h.port.Expect(t, nil)
	defer w.Cancel()
	if _, err := s.Write(appendOffer(nil, h.offer(t))); err == nil {
		_, _ = s.Read(make([]byte, 1))
	}
}

// ping checks that a member is alive. It returns the address of the connection that was used.
func (h *Host) ping(id peer.ID, within time.Duration) (at netip.Addr, err error) {
	ctx, cancel := context.WithTimeout(h.life, within)
	defer cancel()
	err = h.retry(ctx, id, func(ctx context.Context) error {
		s, err := h.open(ctx, id, pingProtocol)
		if err != nil {
			return err
		}
		defer s.Reset()
		stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
		defer stop()
		if _, err := s.Write([]byte{0}); err != nil {
			return err
		}
		if _, err := io.ReadFull(s, make([]byte, 1)); err != nil {
			return err
		}
		at, _ = hostOf(s.Conn().RemoteMultiaddr())
		return nil
	})
	return at, err
}

// acceptPing answers a ping.
func (h *Host) acceptPing(s network.Stream) {
	defer s.Reset()
	var b [1]byte
	if s.SetDeadline(time.Now().Add(bookTime)) != nil {
		return
	}
	if _, err := io.ReadFull(s, b[:]); err == nil {
		if _, err = s.Write(b[:]); err == nil {
			_, _ = s.Read(b[:]) // the other side resets the stream when it has read the answer
		}
	}
}
