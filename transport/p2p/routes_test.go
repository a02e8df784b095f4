package p2p

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/transport/internal/direct"
)

// ip parses an IP address.
func ip(text string) netip.Addr { return netip.MustParseAddr(text) }

// A route is valid for routeTime, for the addresses of the host in any order, until the network
// changes.
func TestRoutes(t *testing.T) {
	r, now := newRoutes(), time.Now()
	key := routeKey([]netip.Addr{ip("10.0.0.1"), ip("10.1.0.1")})
	if other := routeKey([]netip.Addr{ip("10.1.0.1"), ip("10.0.0.1")}); other != key {
		t.Errorf("the order of addresses matters: %q, %q", key, other)
	}
	r.note(key, route{ip: ip("10.1.0.1"), at: now})
	if found, ok := r.find(key, now.Add(routeTime-1)); !ok || found.ip != ip("10.1.0.1") {
		t.Errorf("found %v, %v", found, ok)
	}
	if _, ok := r.find(key, now.Add(routeTime)); ok {
		t.Error("found after its time")
	}
	r.forget()
	if _, ok := r.find(key, now); ok {
		t.Error("found after the network has changed")
	}
}

// Routes to ever new hosts take limited memory.
func TestRoutesAreBounded(t *testing.T) {
	r, now := newRoutes(), time.Now()
	a := ip("10.0.0.0")
	for range 2 * maxRoutes {
		a = a.Next()
		r.note(routeKey([]netip.Addr{a}), route{ip: a, at: now})
		r.bound(a)
	}
	if len(r.known) > maxRoutes || len(r.bounded) > maxRoutes {
		t.Errorf("%d routes and %d bounds, at most %d", len(r.known), len(r.bounded), maxRoutes)
	}
	r.note("later", route{at: now.Add(routeTime)})
	if len(r.known) != 1 {
		t.Errorf("%d routes that do not count make no room", len(r.known)-1)
	}
}

// Only addresses to which long packets are lost get a shorter MSS, and the reason is reported.
func TestBound(t *testing.T) {
	r := newRoutes()
	r.bound(ip("10.0.0.1"))
	to := direct.Target{Network: "tcp", Addr: "10.0.0.1:7"}
	if got := r.withBound(to, ip("10.0.0.1")); got.MSS != safeMSS || !strings.Contains(r.why(ip("10.0.0.1")), "MTU") {
		t.Errorf("target %+v, why %q", got, r.why(ip("10.0.0.1")))
	}
	if got := r.withBound(to, ip("10.0.0.2")); got != to || r.why(ip("10.0.0.2")) != "" {
		t.Errorf("target %+v, why %q", got, r.why(ip("10.0.0.2")))
	}
}

// The message about a choice has the chosen address first, and all others.
func TestCompare(t *testing.T) {
	at := []netip.Addr{ip("10.0.0.1"), ip("10.1.0.1"), ip("10.2.0.1")}
	all := []direct.Surveyed{{Speed: direct.Speed{Rate: 6e6}}, {Speed: direct.Speed{Rate: 117.5e6}}, {Err: errors.New("silent")}}
	want := "fastest of 3 addresses (10.1.0.1: 940 Mbit/s, 10.0.0.1: 48 Mbit/s, 10.2.0.1: no answer)"
	if got := fastestOf(all, at); got.ip != at[1] || got.why != want {
		t.Errorf("route to %v: %s", got.ip, got.why)
	}
	if got := fastestOf(all[2:], at[2:]); got.ip.IsValid() {
		t.Errorf("route to %v, which does not answer", got.ip)
	}
}
