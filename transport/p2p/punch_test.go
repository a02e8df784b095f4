package p2p_test

import (
	"strings"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/p2p"
)

// punching returns cfg with relays and hole punching allowed.
func punching(cfg p2p.Config) p2p.Config {
	cfg = relaying(cfg)
	p2p.OnLoopback(&cfg, true)
	return cfg
}

// Transports over punched connections pass the conformance suite, too.
func TestPunchConformance(t *testing.T) {
	cfg := punching(configs()["tls"])
	conform(t, func(t *testing.T, n int) ([]*p2p.Host, elastic.View) {
		_, hs, v := behind(t, cfg, alike(n, cfg)...)
		return hs, v
	})
}

// Hosts that are connected by hole punching need no relay from their first view on: the relay may
// stop. The UDP address is advertised to nobody else.
func TestPunchPath(t *testing.T) {
	cfg := punching(paths()["direct"])
	open, hs, v := behind(t, cfg, alike(3, cfg)...)
	ts := connect(t, hs, v)
	ring(t, ts)
	for rank, e := range ts {
		for other := range ts {
			if other == rank {
				continue
			}
			path := e.(elastic.Pather).Path(other)
			if path.Kind != "p2p" || !path.Encrypted || !strings.Contains(path.Addr, "/udp/") {
				t.Errorf("rank %d: path %+v", rank, path)
			}
		}
	}
	for _, h := range append(hs, open) {
		for _, a := range h.Addrs() {
			if strings.Contains(a, "/udp/") {
				t.Errorf("a host tells of %s", a)
			}
		}
	}
	if err := open.Close(); err != nil {
		t.Fatal(err)
	}
	ring(t, ts)
	closeAll(t, ts)
	next := elastic.View{Epoch: 2, Parent: v.Hash(), Members: v.Members, Voters: v.Voters}
	ts = connect(t, hs, next)
	ring(t, ts)
	closeAll(t, ts)
}

// A host that allows no relays does no hole punching, and does not answer requests for it.
func TestPunchNeedsBoth(t *testing.T) {
	cfg := punching(configs()["tls"])
	_, hs, v := behind(t, cfg, cfg, relaying(configs()["tls"]))
	ts := connect(t, hs, v)
	ring(t, ts)
	for rank, e := range ts {
		if path := e.(elastic.Pather).Path(1 - rank); path.Kind != "relay" {
			t.Errorf("rank %d: path %+v", rank, path)
		}
	}
	closeAll(t, ts)
}

// A newcomer that a member reaches through a relay gets a direct connection once it has been
// admitted.
func TestPunchForNewcomer(t *testing.T) {
	cfg := punching(configs()["tls"])
	open, m0 := host(t, cfg, policyOf(key(1)))
	hidden, m1 := host(t, cfg, policyOf(key(1)))
	newcomer, m2 := host(t, cfg, nil)
	m1.Addrs, m2.Addrs = []string{nowhere}, []string{nowhere}
	introduce(t, []*p2p.Host{open, hidden}, elastic.View{Members: []elastic.Member{m0, m1}})
	if err := hidden.Send(within(t, long), open.ID(), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	for _, m := range []elastic.Member{m0, m1} {
		if err := newcomer.Prove(within(t, long), m, by(newcomer, key(1))); err != nil {
			t.Fatal(err)
		}
	}
	v := elastic.View{Epoch: 1, Members: []elastic.Member{m1, m2}, Voters: []elastic.ID{m1.ID, m2.ID}}
	ts := connect(t, []*p2p.Host{hidden, newcomer}, v)
	if path := ts[0].(elastic.Pather).Path(1); path.Kind != "p2p" {
		t.Errorf("path %+v", path)
	}
	closeAll(t, ts)
}
