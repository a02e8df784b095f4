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

// A connection of its own may stop being the best one while a view lasts. The watch notices when
//
//   - nothing of what is sent is acknowledged (direct.Progress), though the peer answers a ping:
//     a cable was pulled, or long packets are lost where short ones pass;
//   - the address at this end is gone;
//   - another address of the peer is clearly faster, or answers again.
//
// Then it gives the connection up with mesh.ErrPath, which blames nobody: the members go on in a view
// of the same members, whose connections take the better way. What was under way is done again.
const (
	// watchEvery is the time between two looks at the connections.
	watchEvery = 500 * time.Millisecond
	// pingTime is how long a peer may take to show that it lives.
	pingTime = 1500 * time.Millisecond
	// measureLimit bounds a comparison at both sides.
	measureLimit = 10 * time.Second
	// compareFirst is the time between two comparisons of a peer's addresses, at first and while
	// one of them does not answer. Each comparison that changes nothing doubles it, up to
	// compareLast.
	compareFirst = time.Second
	compareLast  = 30 * time.Second
	// retryFirst is the time until the first attempt to replace a libp2p stream by a connection of
	// its own. Each one doubles it for the peer, up to retryLast, until there is a connection.
	retryFirst = 5 * time.Second
	retryLast  = time.Minute
	// inUse is how many bytes go over a connection between two comparisons that is worth them.
	inUse = 1 << 20
	// fasterNow is by what factor another address is faster that is taken at once, and fasterTwice
	// one that is taken if it is that fast two times in a row.
	fasterNow   = 4
	fasterTwice = 1.5
	// safeMSS fits into the packets of 1,280 bytes that every path of IPv6 passes, with the
	// headers of a tunnel to spare.
	safeMSS = 1160
)

// watch looks after the connections of a host.
type watch struct {
	wake chan struct{} // of one element: there are connections

	mu       sync.Mutex
	watched  map[*direct.Conn]*watched
	standIns map[*stayed]time.Time     // when to look for something better
	pauses   map[peer.ID]time.Duration // to the attempt after that, over all streams of a peer

	comparing sync.Mutex // held by the one that measures: two would share the links
}

// watched is a connection, and what is known of its use. Only the goroutine of the watch uses
// what follows to.
type watched struct {
	conn *direct.Conn
	id   peer.ID

	arrived uint64 // when its use was last looked at
	busy    time.Duration
	next    time.Time     // of the next comparison
	pause   time.Duration // to the one after that
	faster  bool          // another address was, last time
}

// newWatch returns a watch without connections.
func newWatch() *watch {
	return &watch{wake: make(chan struct{}, 1), watched: make(map[*direct.Conn]*watched),
		standIns: make(map[*stayed]time.Time), pauses: make(map[peer.ID]time.Duration)}
}

// addStandIn looks for something better than a stream from now until it ends.
func (w *watch) addStandIn(s *stayed) {
	w.mu.Lock()
	w.standIns[s] = time.Now().Add(max(retryFirst, w.pauses[s.Conn().RemotePeer()]))
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

// due returns the streams for which it is time to look for something better, and whether there are
// others.
func (w *watch) due(now time.Time) (due []*stayed, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s, next := range w.standIns {
		switch id := s.Conn().RemotePeer(); {
		case now.Before(next):
			more = true
		default:
			w.pauses[id] = min(2*max(w.pauses[id], retryFirst), retryLast)
			w.standIns[s] = now.Add(w.pauses[id])
			due = append(due, s)
		}
	}
	return due, more
}

// add looks after a connection over TCP from now until it ends.
func (w *watch) add(c *direct.Conn, id peer.ID) {
	if local, _ := c.Ends(); !local.IsValid() {
		return // within a host nothing changes
	}
	w.mu.Lock()
	delete(w.pauses, id)
	c.OnEnd(func() { w.drop(c) })
	w.watched[c] = &watched{conn: c, id: id, pause: compareFirst, next: time.Now().Add(compareFirst)}
	w.mu.Unlock()
	w.start()
}

// drop forgets a connection that ends.
func (w *watch) drop(c *direct.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.watched, c)
}

// dropStandIn forgets a stream that ends.
func (w *watch) dropStandIn(s *stayed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.standIns, s)
}

// all returns the connections that have not ended.
func (w *watch) all() []*watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*watched
	for _, one := range w.watched {
		all = append(all, one)
	}
	return all
}

// runWatch looks after the connections until the host closes. Without any it sleeps.
func (h *Host) runWatch() {
	changes := make(<-chan struct{}) // never, where the system tells nothing
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
			looking.Go(func() { h.look(one) })
		}
		for _, s := range due {
			looking.Go(func() { h.improve(s) })
		}
		looking.Wait()
	}
}

// networkChanged takes in that addresses or interfaces of this host have changed: what was
// measured counts no more, connections from addresses that are gone end, and the members are told
// where this host listens now.
func (h *Host) networkChanged() {
	h.routes.forget()
	h.mu.Lock()
	clear(h.silent)
	h.mu.Unlock()
	own := ownAddrs()
	gone := func(ip netip.Addr) bool {
		return ip.IsValid() && !ip.IsUnspecified() && !slices.Contains(own, ip.WithZone("")) // QUIC tells of no address
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
			h.tellAddrs()
		}()
	}
}

// tellAddrs tells all members where this host listens, and connects with them again where its own
// address was what connected them.
func (h *Host) tellAddrs() {
	ctx, cancel := context.WithTimeout(h.life, bookTime)
	defer cancel()
	turns := make(chan struct{}, maxFirstDials)
	var asking sync.WaitGroup
	for _, id := range h.gate.all() {
		asking.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			_, _ = h.Exchange(ctx, elastic.ID(id.String()), false) // they ask, too, when they look for it
		})
	}
	asking.Wait()
}

// look looks after one connection.
func (h *Host) look(one *watched) {
	p := one.conn.Progress()
	if p.Stuck {
		h.unstick(one)
		return
	}
	if one.conn.Target() == (direct.Target{}) || time.Now().Before(one.next) || p.Arrived-one.arrived < inUse {
		return
	}
	rate := float64(p.Arrived-one.arrived) / max(p.Busy-one.busy, time.Millisecond).Seconds()
	one.arrived, one.busy = p.Arrived, p.Busy
	h.compare(one, rate)
}

// unstick gives up a connection on which nothing arrives, unless the peer does not answer either:
// then the members find out whether it lives.
func (h *Host) unstick(one *watched) {
	_, remote := one.conn.Ends()
	at, err := h.ping(one.id, pingTime/4)
	if err != nil {
		for _, c := range h.swarm.ConnsToPeer(one.id) {
			if ip, ok := hostOf(c.RemoteMultiaddr()); ok && ip == remote {
				h.hangUp(c) // it goes the same way
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
		h.noteSilent(to)
	}
	h.routes.forget()
	one.conn.GiveUp(fmt.Errorf("%w: %s", mesh.ErrPath, why))
}

// compare measures the addresses of a peer, and gives the connection up if another than its own
// is clearly faster. rate is what the connection has carried of late, in bytes per second.
func (h *Host) compare(one *watched, rate float64) {
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
	all[now].Speed.Rate = max(all[now].Speed.Rate, rate) // its own traffic was in the way
	best := direct.Fastest(all)
	if one.better(all, now, best) {
		h.routes.note(routeKey(at), fastestOf(all, at))
		one.conn.GiveUp(fmt.Errorf("%w: %s", mesh.ErrPath, compare(all, at, best)))
	}
}

// improve gives up a libp2p stream if the peer can be reached by a connection of its own by now.
func (h *Host) improve(s *stayed) {
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
	h.noteHeard(all[best].Target)
	h.routes.note(routeKey(at), fastestOf(all, at))
	s.giveUp(fmt.Errorf("%w: %s answers again", mesh.ErrPath, at[best]))
}

// better decides after a comparison whether to change from address now to the best one, and when
// the next one is.
func (one *watched) better(all []direct.Surveyed, now, best int) bool {
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

// survey has a peer wait for measurements, and measures it at those of the addresses that it
// listens at.
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

// acceptSurvey lets a member measure this host until it resets the stream.
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

// ping asks a member whether it lives, and returns the address at which it was asked.
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

// acceptPing answers one.
func (h *Host) acceptPing(s network.Stream) {
	defer s.Reset()
	var b [1]byte
	if s.SetDeadline(time.Now().Add(bookTime)) != nil {
		return
	}
	if _, err := io.ReadFull(s, b[:]); err == nil {
		if _, err = s.Write(b[:]); err == nil {
			_, _ = s.Read(b[:]) // the other side resets it when it has the answer
		}
	}
}
