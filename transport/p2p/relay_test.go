package p2p_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/p2p"
)

// nowhere is an address at which nobody listens.
const nowhere = "/ip4/127.0.0.1/tcp/1"

// relaying returns cfg with relays allowed.
func relaying(cfg p2p.Config) p2p.Config {
	cfg.Relay = "members"
	p2p.OnLoopback(&cfg, false)
	return cfg
}

// behind starts a relay, which is not in the view, and a host for each of cfgs that nobody can
// dial, all connected with the relay.
func behind(t testing.TB, first p2p.Config, cfgs ...p2p.Config) (open *p2p.Host, hs []*p2p.Host, v elastic.View) {
	t.Helper()
	os, all := hosts(t, 1, first)
	v = elastic.View{Epoch: 1}
	for i, cfg := range cfgs {
		h, _ := hosts(t, 1, cfg)
		hs = append(hs, h[0])
		v.Members = append(v.Members, elastic.Member{ID: h[0].ID(), Index: i, Addrs: []string{nowhere}})
		v.Voters = append(v.Voters, h[0].ID())
	}
	all.Members = append(all.Members, v.Members...)
	introduce(t, append(os, hs...), all)
	for _, h := range hs {
		if err := h.Send(within(t, long), os[0].ID(), []byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	return os[0], hs, v
}

// alike returns n copies of cfg.
func alike(n int, cfg p2p.Config) []p2p.Config {
	var out []p2p.Config
	for range n {
		out = append(out, cfg)
	}
	return out
}

// Transports over relays pass the conformance suite, too.
func TestRelayConformance(t *testing.T) {
	cfg := relaying(configs()["tls"])
	conform(t, func(t *testing.T, n int) ([]*p2p.Host, elastic.View) {
		_, hs, v := behind(t, cfg, alike(n, cfg)...)
		return hs, v
	})
}

// The log names the relay. The addresses that a host advertises are its own.
func TestRelayPath(t *testing.T) {
	cfg := relaying(paths()["direct"])
	open, hs, v := behind(t, cfg, cfg, cfg)
	ts := connect(t, hs, v)
	ring(t, ts)
	for rank, e := range ts {
		path := e.(elastic.Pather).Path(1 - rank)
		if path.Kind != "relay" || !path.Encrypted || !strings.HasSuffix(path.Addr, "/p2p/"+string(open.ID())+"/p2p-circuit") {
			t.Errorf("rank %d: path %+v", rank, path)
		}
	}
	closeAll(t, ts)
	for _, a := range open.Addrs() {
		if strings.Contains(a, "circuit") {
			t.Errorf("the host listens at %s", a)
		}
	}
}

// A host that does not allow relays is no relay, uses no relay, and is not reached through a relay.
func TestRelayNeedsAll(t *testing.T) {
	never := configs()["tls"]
	for name, who := range map[string]int{"relay": 0, "dialler": 2, "dialled": 1} {
		t.Run(name, func(t *testing.T) {
			cfgs := alike(3, relaying(never))
			cfgs[who] = never
			_, hs, _ := behind(t, cfgs[0], cfgs[1:]...)
			if err := hs[1].Send(within(t, short), hs[0].ID(), []byte("hello")); err == nil {
				t.Error("the message went somewhere")
			}
		})
	}
}

// When the relay dies the two hosts are disconnected, and report that at once.
func TestRelayDies(t *testing.T) {
	cfg := relaying(configs()["tls"])
	open, hs, v := behind(t, cfg, cfg, cfg)
	ts := connect(t, hs, v)
	if err := open.Close(); err != nil {
		t.Fatal(err)
	}
	for rank, e := range ts {
		err := e.Recv(within(t, long), 1-rank, transport.Envelope{Seq: 1}, make([]byte, 1))
		if lost := new(transport.PeerError); !errors.As(err, &lost) && !errors.Is(err, transport.ErrRevoked) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	closeAll(t, ts)
	next := elastic.View{Epoch: 2, Parent: v.Hash(), Members: v.Members, Voters: v.Voters}
	if _, err := tryConnect(within(t, short), hs, next); err == nil {
		t.Error("a view of two that cannot reach each other")
	}
}

// If the network allows direct connections later, the next views use them in place of the relay.
func TestRelayMakesWay(t *testing.T) {
	cfg := relaying(configs()["tls"])
	_, hs, v := behind(t, cfg, cfg, cfg)
	way, addr := dig(t, hs[0].Addrs()[0])
	way.open()
	v.Members[0].Addrs = []string{addr}
	if err := hs[1].Introduce(v.Members); err != nil {
		t.Fatal(err)
	}
	ctx := within(t, long)
	for kind := ""; kind != "p2p"; v = (elastic.View{Epoch: v.Epoch + 1, Parent: v.Hash(), Members: v.Members, Voters: v.Voters}) {
		if ctx.Err() != nil {
			t.Fatal("the relay remains")
		}
		ts := connect(t, hs, v)
		kind = ts[1].(elastic.Pather).Path(0).Kind
		closeAll(t, ts)
		if v.Epoch == 1 {
			if kind != "relay" {
				t.Fatalf("the first view has the path %q", kind)
			}
			way.fill()
		}
	}
}

// A newcomer with a ticket proves its right to join to a member that it reaches only through a
// relay.
func TestRelayForNewcomer(t *testing.T) {
	cfg := relaying(configs()["tls"])
	open, m0 := host(t, cfg, policyOf(key(1)))
	hidden, m1 := host(t, cfg, policyOf(key(1)))
	newcomer, _ := host(t, cfg, nil)
	m1.Addrs = []string{nowhere}
	introduce(t, []*p2p.Host{open, hidden}, elastic.View{Members: []elastic.Member{m0, m1}})
	if err := hidden.Send(within(t, long), open.ID(), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := newcomer.Prove(within(t, long), m0, by(newcomer, key(1))); err != nil {
		t.Fatal(err)
	}
	if err := newcomer.Prove(within(t, long), m1, by(newcomer, key(1))); err != nil {
		t.Fatal(err)
	}
}

// A newcomer can be reached as soon as one member has admitted it, before it sends another message.
func TestRelayToNewcomer(t *testing.T) {
	cfg := relaying(configs()["tls"])
	open, m0 := host(t, cfg, policyOf(key(1)))
	hidden, m1 := host(t, cfg, policyOf(key(1)))
	newcomer, m2 := host(t, cfg, nil)
	m1.Addrs, m2.Addrs = []string{nowhere}, []string{nowhere}
	if err := hidden.Introduce([]elastic.Member{m0, m2}); err != nil {
		t.Fatal(err)
	}
	if err := open.Introduce([]elastic.Member{m1}); err != nil {
		t.Fatal(err)
	}
	if err := newcomer.Prove(within(t, long), m0, by(newcomer, key(1))); err != nil {
		t.Fatal(err)
	}
	if err := newcomer.Introduce([]elastic.Member{m1}); err != nil {
		t.Fatal(err)
	}
	for _, to := range []*p2p.Host{open, newcomer} {
		if err := hidden.Send(within(t, long), to.ID(), []byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
}

// An unknown value of Config.Relay is an error.
func TestRelayErrors(t *testing.T) {
	cfg := configs()["tls"]
	cfg.Relay = "anybody"
	if _, err := p2p.Listen(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "never or members") {
		t.Errorf("error %v", err)
	}
}
