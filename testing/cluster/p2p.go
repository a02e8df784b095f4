package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/p2p"
)

// Hosts are libp2p hosts of one job on this machine. They end with the test.
type Hosts struct {
	hosts []*p2p.Host
	views uint64 // number of views so far
}

// NewHosts starts n hosts, whose data takes the best kind of path. On one machine that is shared memory.
func NewHosts(t testing.TB, n int) *Hosts {
	t.Helper()
	return NewHostsBy(t, n, "auto")
}

// NewHostsBy starts n hosts with a kind of path for data, as in p2p.Config: "direct" or "p2p" for connections over the loopback
// interface.
func NewHostsBy(t testing.TB, n int, path string) *Hosts {
	t.Helper()
	hosts, err := listen(t.Context(), t.Name(), n, path)
	t.Cleanup(func() {
		if err := closeHosts(hosts); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return &Hosts{hosts: hosts}
}

// Transports creates a new view of all hosts, and returns its transports by rank. The transports of the previous view must be
// closed by then.
func (h *Hosts) Transports(t testing.TB) []transport.Transport {
	t.Helper()
	h.views++
	ts, err := connect(t.Context(), h.hosts, h.views)
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

// listen starts n hosts of one job. On an error it also returns the hosts that were started.
func listen(ctx context.Context, job string, n int, path string) ([]*p2p.Host, error) {
	var hosts []*p2p.Host
	for i := range n {
		h, err := p2p.Listen(ctx, p2p.Config{
			Job: job[:min(len(job), 255)], ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}, Path: path,
		})
		if err != nil {
			return hosts, fmt.Errorf("host %d: %w", i, err)
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}

// connect creates a view of all hosts, and returns its transports by rank. On an error it closes all of them.
func connect(ctx context.Context, hosts []*p2p.Host, epoch uint64) ([]transport.Transport, error) {
	v := elastic.View{Epoch: epoch}
	for i, h := range hosts {
		v.Members = append(v.Members, elastic.Member{ID: h.ID(), Index: i, Addrs: h.Addrs()})
		v.Voters = append(v.Voters, h.ID())
	}
	ts := make([]transport.Transport, len(hosts))
	err := errors.Join(each(len(hosts), func(rank int) error {
		if err := hosts[rank].Introduce(v.Members); err != nil {
			return err
		}
		t, err := hosts[rank].Connect(ctx, v, rank)
		if err == nil {
			ts[rank] = t
		}
		return err
	})...)
	if err == nil {
		return ts, nil
	}
	for _, t := range ts {
		if t != nil {
			err = errors.Join(err, t.Close())
		}
	}
	return nil, err
}

func closeHosts(hosts []*p2p.Host) error {
	var errs []error
	for _, h := range hosts {
		errs = append(errs, h.Close())
	}
	return errors.Join(errs...)
}
