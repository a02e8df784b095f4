package p2p_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/p2p"
)

// BenchmarkConnect connects the same hosts again and again, as the survivors of a death do: one
// epoch after another, while the transport of the epoch before is closing.
func BenchmarkConnect(b *testing.B) {
	for _, name := range []string{"tls", "direct", "unix", "auto"} {
		for _, n := range []int{2, 4} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				hs, v := hosts(b, n, paths()[name])
				ts := connect(b, hs, v)
				for b.Loop() {
					v = elastic.View{Epoch: v.Epoch + 1, Parent: v.Hash(), Members: v.Members, Voters: v.Voters}
					next := connect(b, hs, v)
					b.StopTimer()
					closeAll(b, ts)
					ts = next
					b.StartTimer()
				}
				closeAll(b, ts)
			})
		}
	}
}

// Members die one after the other. After each death the remaining members connect again, on the
// same hosts, while the transports of the epoch before are closing.
func TestChurn(t *testing.T) {
	for name, cfg := range paths() {
		t.Run(name, func(t *testing.T) {
			hs, v := hosts(t, 5, cfg)
			var closing sync.WaitGroup
			defer closing.Wait()
			for len(hs) > 1 {
				ts := connect(t, hs, v)
				ring(t, ts)
				victim := int(v.Epoch) % len(hs)
				if err := hs[victim].Close(); err != nil {
					t.Error(err)
				}
				for rank, e := range ts {
					if err := e.Recv(within(t, long), (rank+1)%len(ts), transport.Envelope{Seq: 9}, nil); err == nil {
						t.Errorf("rank %d received after a death", rank)
					}
					closing.Go(func() { _ = e.Close() })
				}
				hs = slices.Delete(hs, victim, victim+1)
				v = elastic.View{Epoch: v.Epoch + 1, Parent: v.Hash(),
					Members: slices.Delete(slices.Clone(v.Members), victim, victim+1)}
			}
		})
	}
}

// A dead member makes Connect fail at all ranks, whether the member was reached before or not, and
// whichever side should have dialled. No rank waits for a deadline.
func TestConnectToTheDead(t *testing.T) {
	t.Parallel() // it waits
	for rank := range 3 {
		t.Run(fmt.Sprint(rank), func(t *testing.T) {
			t.Parallel()
			hs, v := hosts(t, 3, configs()["tls"])
			if err := hs[rank].Close(); err != nil {
				t.Fatal(err)
			}
			errs := make(chan error)
			for self := range hs {
				if self == rank {
					continue
				}
				go func() {
					_, err := hs[self].Connect(within(t, long), v, self)
					errs <- err
				}()
			}
			for range 2 {
				var lost *transport.PeerError
				if err := <-errs; !errors.As(err, &lost) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

// Dialling into an epoch that a member has left blames no member.
func TestConnectStale(t *testing.T) {
	hs, v := hosts(t, 2, configs()["tls"])
	closeAll(t, connect(t, hs, v))
	later := elastic.View{Epoch: 5, Parent: v.Hash(), Members: v.Members}
	closeAll(t, connect(t, hs, later))
	third, w := hosts(t, 1, configs()["tls"])
	stale := elastic.View{Epoch: 3, Members: append(slices.Clone(v.Members[:1]), w.Members...)}
	introduce(t, hs[:1], stale)
	_, err := third[0].Connect(within(t, long), stale, 1)
	if !errors.Is(err, transport.ErrRevoked) || errors.Is(err, transport.ErrPeer) {
		t.Errorf("got %v", err)
	}
}

// Send to a peer whose process is dead fails without a deadline, also if the peer was never
// reached.
func TestSendToTheDead(t *testing.T) {
	t.Parallel() // it waits
	hs, v := hosts(t, 2, configs()["tls"])
	introduce(t, hs, v)
	if err := hs[1].Close(); err != nil {
		t.Fatal(err)
	}
	if err := hs[0].Send(within(t, long), v.Members[1].ID, nil); !errors.Is(err, elastic.ErrGone) {
		t.Errorf("got %v", err)
	}
	// A second call of Send gives the same result.
	if err := hs[0].Send(within(t, long), v.Members[1].ID, nil); !errors.Is(err, elastic.ErrGone) {
		t.Errorf("got %v", err)
	}
}

// Hosts of one machine that listen on all interfaces connect over loopback.
func TestLoopbackWins(t *testing.T) {
	hs, v := hosts(t, 2, p2p.Config{Job: "test", Path: "p2p"})
	ts := connect(t, hs, v)
	if path := ts[1].(elastic.Pather).Path(0); !strings.HasPrefix(path.Addr, "/ip4/127.0.0.1/") {
		t.Errorf("reached by %s", path.Addr)
	}
	closeAll(t, ts)
}

// Endpoint has the host's own ID and addresses, whatever the caller passes.
func TestEndpoint(t *testing.T) {
	hs, _ := hosts(t, 1, configs()["tls"])
	e := hs[0].Endpoint(elastic.Member{ID: "someone", Index: 3, Host: "here"})
	if e.Self.ID != hs[0].ID() || e.Self.Index != 3 || !slices.Equal(e.Self.Addrs, hs[0].Addrs()) {
		t.Errorf("self is %+v", e.Self)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if _, open := <-e.Network.Events(); open {
		t.Error("an event after Close")
	}
}
