package p2p_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/networktest"
	"github.com/elrun/elrun/testing/transporttest"
	"github.com/elrun/elrun/transport/p2p"
)

// configs are the kinds of libp2p connections, which must all behave alike.
func configs() map[string]p2p.Config {
	tcp := []string{"/ip4/127.0.0.1/tcp/0"}
	return map[string]p2p.Config{
		"tls": {Job: "test", Path: "p2p", ListenAddrs: tcp},
	}
}

// paths are the kinds of paths for data, including those of libp2p.
func paths() map[string]p2p.Config {
	tcp := []string{"/ip4/127.0.0.1/tcp/0"}
	all := configs()
	all["direct"] = p2p.Config{Job: "test", Path: "direct", ListenAddrs: tcp}
	all["plain"] = p2p.Config{Job: "test", Path: "direct", Encrypt: "never", ListenAddrs: tcp}
	all["unix"] = p2p.Config{Job: "test", Path: "unix", ListenAddrs: tcp}
	all["auto"] = p2p.Config{Job: "test", ListenAddrs: tcp}
	all["local"] = p2p.Config{Job: "test", ListenAddrs: tcp, HostKey: make([]byte, p2p.HostKeySize)}
	all["local unix"] = p2p.Config{Job: "test", Path: "unix", ListenAddrs: tcp, HostKey: make([]byte, p2p.HostKeySize)}
	for _, name := range []string{"tls", "direct", "auto", "local"} {
		cfg := all[name]
		p2p.SetPlan(&cfg, networktest.Chain)
		all[name+" on demand"] = cfg
	}
	return all
}

// hosts starts n hosts, which the test closes at its end.
func hosts(t testing.TB, n int, cfg p2p.Config) ([]*p2p.Host, elastic.View) {
	t.Helper()
	v := elastic.View{Epoch: 1}
	var hs []*p2p.Host
	for i := range n {
		h, err := p2p.Listen(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := h.Close(); err != nil {
				t.Errorf("close host %d: %v", i, err)
			}
		})
		hs = append(hs, h)
		v.Members = append(v.Members, elastic.Member{ID: h.ID(), Index: i, Addrs: h.Addrs()})
		v.Voters = append(v.Voters, h.ID())
	}
	return hs, v
}

// connect connects all members of v; hs are in rank order.
func connect(t testing.TB, hs []*p2p.Host, v elastic.View) []transport.Transport {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	ts, err := tryConnect(ctx, hs, v)
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

func tryConnect(ctx context.Context, hs []*p2p.Host, v elastic.View) ([]transport.Transport, error) {
	ts := make([]transport.Transport, len(hs))
	errs := make([]error, len(hs))
	var all sync.WaitGroup
	for rank, h := range hs {
		all.Go(func() { ts[rank], errs[rank] = h.Connect(ctx, v, rank) })
	}
	all.Wait()
	return ts, errors.Join(errs...)
}

func TestConformance(t *testing.T) {
	for name, cfg := range paths() {
		t.Run(name, func(t *testing.T) {
			conform(t, func(t *testing.T, n int) ([]*p2p.Host, elastic.View) { return hosts(t, n, cfg) })
		})
	}
}

// conform runs the conformance suite on transports between the hosts that start returns.
func conform(t *testing.T, start func(t *testing.T, n int) ([]*p2p.Host, elastic.View)) {
	t.Helper()
	owner := make(map[transport.Transport]*p2p.Host)
	transporttest.Run(t, func(t *testing.T, n int) []transport.Transport {
		hs, v := start(t, n)
		ts := connect(t, hs, v)
		for rank, e := range ts {
			owner[e] = hs[rank]
		}
		return ts
	}, transporttest.Options{Kill: func(e transport.Transport) {
		if err := owner[e].Close(); err != nil {
			t.Error(err)
		}
	}})
}

func BenchmarkTransport(b *testing.B) {
	for _, name := range []string{"tls", "direct", "plain", "unix"} {
		b.Run(name, func(b *testing.B) {
			transporttest.Benchmark(b, func(b *testing.B) []transport.Transport {
				hs, v := hosts(b, 2, paths()[name])
				return connect(b, hs, v)
			})
		})
	}
}
