package p2p

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/mesh"
)

// watchedHosts starts two hosts that know each other, and returns the ID of the second.
func watchedHosts(t *testing.T) (a, b *Host, id peer.ID) {
	t.Helper()
	var hs [2]*Host
	for i := range hs {
		h, err := Listen(t.Context(), Config{Job: "test", ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
		hs[i] = h
	}
	a, b = hs[0], hs[1]
	for _, h := range hs {
		if err := h.Introduce([]elastic.Member{{ID: a.ID(), Addrs: a.Addrs()}, {ID: b.ID(), Addrs: b.Addrs()}}); err != nil {
			t.Fatal(err)
		}
	}
	id, err := idOf(string(b.ID()))
	if err != nil {
		t.Fatal(err)
	}
	return a, b, id
}

// surveyLimit is the timeout of each wait of a test.
const surveyLimit = 4 * time.Minute

// A member accepts measurements at its addresses, and answers pings.
func TestSurveyOfMember(t *testing.T) {
	a, _, id := watchedHosts(t)
	ctx, cancel := context.WithTimeout(t.Context(), surveyLimit)
	defer cancel()
	ips := []netip.Addr{ip("127.0.0.1"), ip("127.0.0.2")} // at the second nobody listens
	all, at, err := a.watch.survey(ctx, id, ips)
	if err != nil || len(all) != 1 || len(at) != 1 || at[0] != ips[0] {
		t.Fatalf("survey: %+v at %v, %v", all, at, err)
	}
	if best := direct.Fastest(all); best != 0 && all[0].Err == nil { // a busy machine may lack the time
		t.Errorf("survey: %+v", all)
	}
	if at, err := a.watch.ping(id, surveyLimit); err != nil || at != ips[0] {
		t.Errorf("ping: at %v, %v", at, err)
	}
}

// A peer that is no member is neither measured nor answered.
func TestSurveyOfStranger(t *testing.T) {
	a, b, id := watchedHosts(t)
	b.Forget(a.ID())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, _, err := a.watch.survey(ctx, id, []netip.Addr{ip("127.0.0.1")}); err == nil {
		t.Error("measured a host that has forgotten this one")
	}
}

// After a change of its network a host sends its new addresses to the members, and drops its
// measurements.
func TestNetworkChanged(t *testing.T) {
	a, b, id := watchedHosts(t)
	if _, err := a.watch.ping(id, surveyLimit); err != nil { // connected
		t.Fatal(err)
	}
	a.paths.routes.note("x", route{ip: ip("10.0.0.1"), at: time.Now()})
	if err := a.Open([]string{"/ip4/127.0.0.3/tcp/0"}); err != nil {
		t.Fatal(err)
	}
	a.networkChanged()
	if _, ok := a.paths.routes.find("x", time.Now()); ok {
		t.Error("a route is left")
	}
	self, err := idOf(string(a.ID()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), surveyLimit)
	defer cancel()
	for len(b.addresses.known(self)) < 2 {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("b knows %v", b.addresses.known(self))
		}
	}
}

// The watch monitors TCP connections until they end, and no Unix sockets.
func TestWatch(t *testing.T) {
	w := newWatchList()
	p, err := direct.Open(direct.Config{IPs: []netip.Addr{ip("127.0.0.1")}, Unix: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, network := range []string{"tcp", "unix"} {
		ticket := direct.NewTicket()
		offer := p.Offer(ticket)
		to, ok := offer.ByTCP(ip("127.0.0.1"))
		if network == "unix" {
			to, ok = offer.ByUnix()
		}
		if !ok {
			continue // no such socket on this system
		}
		wait := p.Expect(ticket, nil)
		c, err := direct.Dial(t.Context(), to, ticket, nil)
		if err != nil {
			t.Fatal(err)
		}
		far, err := wait.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.add(c, "peer")
		want := 0
		if network == "tcp" {
			want = 1
		}
		if got := len(w.all()); got != want {
			t.Errorf("%s: %d connections are looked after, want %d", network, got, want)
		}
		why := errors.New("for a reason")
		c.GiveUp(why)
		c.GiveUp(errors.New("again"))
		if _, err := c.Write([]byte{0}); !errors.Is(err, why) {
			t.Errorf("%s: written after it was given up: %v", network, err)
		}
		if got := len(w.all()); got != 0 {
			t.Errorf("%s: %d connections are looked after at the end", network, got)
		}
		_ = far.Close()
		wait.Cancel()
	}
}

// A fallback stream is given up with ErrPath when the peer's direct port can be reached. Until then
// the attempts become rarer.
func TestFallbackStream(t *testing.T) {
	a, _, id := watchedHosts(t)
	raw, err := a.dialer.open(t.Context(), id, surveyProtocol)
	if err != nil {
		t.Fatal(err)
	}
	s := &fallback{stream: &stream{lazyStream: raw}, why: "it was away", ended: a.watch.list.dropFallback}
	a.watch.list.addFallback(s)
	w, now := a.watch.list, time.Now()
	if due := w.due(now); len(due) != 0 || w.empty() {
		t.Errorf("due at once: %d; empty %v", len(due), w.empty())
	}
	for _, pause := range []time.Duration{retryFirst, 2 * retryFirst, 4 * retryFirst} {
		now = now.Add(pause + time.Second)
		if due := w.due(now); len(due) != 1 {
			t.Errorf("%d are due after %v", len(due), pause)
		}
	}
	a.watch.retryDirect(s) // b listens
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, mesh.ErrPath) {
		t.Errorf("read after something better was found: %v", err)
	}
	if due := w.due(now.Add(time.Hour)); len(due) != 0 || !w.empty() {
		t.Error("one that has ended is looked after")
	}
	if w.pauses[id] == 0 {
		t.Error("the next stream of the peer begins anew")
	}
}
