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

// pingLimit is the timeout of each wait of a test.
const pingLimit = 4 * time.Minute

// A member answers pings.
func TestPing(t *testing.T) {
	a, _, id := watchedHosts(t)
	if at, err := a.watch.ping(id, pingLimit); err != nil || at != ip("127.0.0.1") {
		t.Errorf("ping: at %v, %v", at, err)
	}
}

// After a change of its network a host sends its new addresses to the members, and drops its
// measurements.
func TestNetworkChanged(t *testing.T) {
	a, b, id := watchedHosts(t)
	if _, err := a.watch.ping(id, pingLimit); err != nil { // connected
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
	ctx, cancel := context.WithTimeout(t.Context(), pingLimit)
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
	p, err := direct.Open(direct.Config{IPs: []netip.Addr{ip("127.0.0.1")}, ID: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, network := range []string{"tcp", "unix"} {
		ticket := direct.NewTicket()
		offer := p.Offer(ticket)
		to, ok := offer.ByTCP(ip("127.0.0.1"))
		if network == "unix" {
			to, ok = direct.UnixTarget(t.Name()), offer.KernelID != [32]byte{}
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
