package p2p_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/multiformats/go-multiaddr"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/pause"
	"github.com/elrun/elrun/transport/p2p"
)

// freeRange returns the first of n consecutive ports that were free a moment ago.
func freeRange(t *testing.T, n int) int {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		first := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		free := first+n < 1<<16
		for port := first; free && port < first+n; port++ {
			l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
			if free = err == nil; free {
				_ = l.Close()
			}
		}
		if free {
			return first
		}
	}
	t.Skip("no free ports in a row")
	return 0
}

// Each host takes two free ports of a range. A host that finds no free port fails with an error
// that says so, and so does a host at a single port that is in use.
func TestListenInRange(t *testing.T) {
	first := freeRange(t, 5)
	cfg := p2p.Config{Job: "test", ListenAddrs: []string{fmt.Sprintf("/ip4/127.0.0.1/tcp/%d-%d", first, first+4)}}
	hs, v := hosts(t, 2, cfg)
	for _, h := range hs {
		port := ""
		if a, err := multiaddr.NewMultiaddr(h.Addrs()[0]); err == nil {
			port, _ = a.ValueForProtocol(multiaddr.P_TCP)
		}
		if port < fmt.Sprint(first) || port > fmt.Sprint(first+4) {
			t.Errorf("listens at %v, want ports from %d to %d", h.Addrs(), first, first+4)
		}
	}
	for _, tr := range connect(t, hs, v) {
		defer tr.Close()
	}
	h, err := p2p.Listen(t.Context(), cfg)
	if err == nil {
		_ = h.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "no free port left: each peer needs two ports") {
		t.Errorf("a third host in five ports: %v", err)
	}
	cfg.ListenAddrs = []string{fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", first)}
	if h, err = p2p.Listen(t.Context(), cfg); err == nil {
		_ = h.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "address already in use; give a range with two ports for each peer") {
		t.Errorf("a host at a port in use: %v", err)
	}
	for _, bad := range []string{"/ip4/127.0.0.1/tcp/5-4", "/ip4/127.0.0.1/tcp/0-4", "/ip4/127.0.0.1/tcp/x-y", "nowhere"} {
		if err := p2p.CheckAddr(bad); err == nil {
			t.Errorf("%s passes", bad)
		}
	}
}

// A host that opens itself later is reached by hosts that know only its earlier addresses, after
// they have asked a member. If a host is asked to open itself and may not do so, it answers with an
// error.
func TestOpenLater(t *testing.T) {
	cfg := p2p.Config{Job: "test", ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}}
	opened := make(chan bool, 10)
	var second *p2p.Host
	open := func() error {
		opened <- true
		return second.Open([]string{"/ip4/127.0.0.2/tcp/0"})
	}
	first, a := host(t, cfg, policyOf(key(1)))
	asked := cfg
	asked.OnOpen = open
	second, b := host(t, asked, policyOf(key(1)))
	for _, h := range []*p2p.Host{first, second} {
		if err := h.Introduce([]elastic.Member{a, b}); err != nil {
			t.Fatal(err)
		}
	}
	changed, err := first.Exchange(within(t, long), b.ID, true)
	if err != nil || !changed || len(opened) != 1 {
		t.Fatalf("opened %d times, changed %v, %v", len(opened), changed, err)
	}
	if changed, err := first.Exchange(within(t, long), b.ID, false); err != nil || changed {
		t.Errorf("again: changed %v, %v", changed, err)
	}
	if _, err := second.Exchange(within(t, long), a.ID, true); err == nil || !strings.Contains(err.Error(), "does not let members open it") {
		t.Errorf("a host that may not open: %v", err)
	}
	late, _ := host(t, cfg, policyOf(key(1)))
	if err := late.Introduce([]elastic.Member{a}); err != nil {
		t.Fatal(err)
	}
	if err := first.Introduce([]elastic.Member{{ID: late.ID(), Addrs: late.Addrs()}}); err != nil {
		t.Fatal(err)
	}
	if _, err := late.Exchange(within(t, long), a.ID, false); err != nil {
		t.Fatal(err)
	}
	far := func(m elastic.Member) bool { return strings.HasPrefix(m.Addrs[len(m.Addrs)-1], "/ip4/127.0.0.2/") }
	if got := late.Complete([]elastic.Member{b}); !slices.ContainsFunc(got, far) {
		t.Errorf("a newcomer knows %v", got)
	}
}

// Members that were asked to listen on the network learn the new addresses of each other: they ask
// the host that has asked all members to listen.
func TestOpenedHostsLearnOfEachOther(t *testing.T) {
	cfg := p2p.Config{Job: "test", ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}}
	first, a := host(t, cfg, policyOf(key(1)))
	all, hosts := []elastic.Member{a}, []*p2p.Host{first}
	for range 2 {
		var h *p2p.Host
		asked := cfg
		asked.OnOpen = func() error { return h.Open([]string{"/ip4/127.0.0.2/tcp/0"}) }
		var m elastic.Member
		h, m = host(t, asked, policyOf(key(1)))
		all, hosts = append(all, m), append(hosts, h)
	}
	for _, h := range hosts {
		if err := h.Introduce(all); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // at the end of the first round the first host knows all addresses
		for _, m := range all[1:] {
			if _, err := first.Exchange(within(t, long), m.ID, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, h := range hosts[1:] {
		other := all[2-i : 3-i]
		knows := func() bool {
			return slices.ContainsFunc(h.Complete(other)[0].Addrs, func(a string) bool { return strings.HasPrefix(a, "/ip4/127.0.0.2/") })
		}
		for ctx := within(t, long); !knows(); {
			if err := pause.For(ctx, time.Millisecond); err != nil {
				t.Fatalf("host %d knows %v: %v", i, h.Complete(other), err)
			}
		}
	}
}
