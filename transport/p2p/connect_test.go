package p2p_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/p2p"
)

// closeAll closes all transports at the same time, as ranks do.
func closeAll(t testing.TB, ts []transport.Transport) {
	t.Helper()
	done := make(chan error)
	for _, e := range ts {
		go func() { done <- e.Close() }()
	}
	for range ts {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// ring sends a byte from each rank to the next.
func ring(t testing.TB, ts []transport.Transport) {
	t.Helper()
	e, n := transport.Envelope{Seq: 1}, len(ts)
	for rank := range ts {
		if err := ts[rank].Send(within(t, long), (rank+1)%n, e, []byte{byte(rank)}); err != nil {
			t.Error(err)
		}
	}
	for rank := range ts {
		b := []byte{255}
		before := (rank + n - 1) % n
		if err := ts[rank].Recv(within(t, long), before, e, b); err != nil || b[0] != byte(before) {
			t.Errorf("rank %d received %d, %v", rank, b[0], err)
		}
	}
}

// More hosts than libp2p's default limits allow per address, all at once.
func TestConnectMany(t *testing.T) {
	hs, v := hosts(t, 14, configs()["tls"])
	ts := connect(t, hs, v)
	ring(t, ts)
	closeAll(t, ts)
}

// Only one of two hosts can dial, as behind a firewall. They connect, whichever opens the streams
// of the pair.
func TestConnectOneWay(t *testing.T) {
	for _, name := range []string{"tls", "direct", "auto"} {
		for hidden := range 2 {
			t.Run(fmt.Sprintf("%s/%d is hidden", name, hidden), func(t *testing.T) {
				t.Parallel()
				hs, v := hosts(t, 2, paths()[name])
				v.Members[hidden].Addrs = []string{p2p.Mute(t)}
				introduce(t, hs, v)
				ts := connect(t, hs, v)
				ring(t, ts)
				closeAll(t, ts)
			})
		}
	}
}

// Path has the other end's address, in the form that the other end itself reports.
func TestPath(t *testing.T) {
	hs, v := hosts(t, 2, configs()["tls"])
	ts := connect(t, hs, v)
	for rank, e := range ts {
		path := e.(elastic.Pather).Path(1 - rank)
		if path.Kind != "p2p" || !path.Encrypted || !strings.HasPrefix(path.Addr, "/ip4/127.0.0.1/tcp/") {
			t.Errorf("rank %d: path %+v", rank, path)
		}
	}
	closeAll(t, ts)
}

func TestConnectAlone(t *testing.T) {
	hs, v := hosts(t, 1, configs()["tls"])
	ts := connect(t, hs, v)
	ring(t, ts)
	closeAll(t, ts)
}

// A second view begins on the same hosts, with other ranks, before all ranks have closed the first.
func TestConnectNextEpoch(t *testing.T) {
	for name, cfg := range paths() {
		t.Run(name, func(t *testing.T) {
			hs, v := hosts(t, 3, cfg)
			first := connect(t, hs, v)
			next := elastic.View{Epoch: 2, Parent: v.Hash(), Members: slices.Clone(v.Members), Voters: v.Voters}
			slices.Reverse(next.Members)
			slices.Reverse(hs)
			second := connect(t, hs, next)
			ring(t, first)
			ring(t, second)
			closeAll(t, first)
			ring2 := transport.Envelope{Seq: 2}
			if err := second[0].Send(t.Context(), 2, ring2, nil); err != nil {
				t.Error(err)
			}
			if err := second[2].Recv(within(t, long), 0, ring2, nil); err != nil {
				t.Error(err)
			}
			if _, err := hs[0].Connect(t.Context(), v, 2); err == nil {
				t.Error("entered an epoch that is over")
			}
			closeAll(t, second)
		})
	}
}

// One rank enters last: streams to it are parked until then.
func TestConnectParks(t *testing.T) {
	hs, v := hosts(t, 3, configs()["tls"])
	introduce(t, hs, v)
	ts := make([]transport.Transport, 3)
	errs := make(chan error)
	enter := func(rank int) {
		var err error
		ts[rank], err = hs[rank].Connect(within(t, long), v, rank)
		errs <- err
	}
	go enter(2)
	go enter(1)
	// A message shows that ranks 1 and 2 are connected with rank 0.
	send(t, hs, 1, 0, "here")
	send(t, hs, 2, 0, "here")
	go enter(0)
	for range ts {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	ring(t, ts)
	closeAll(t, ts)
}

// refusals are the differences for which two hosts must not exchange data.
func TestConnectRefused(t *testing.T) {
	tests := map[string]struct {
		job  string
		view func(v elastic.View) elastic.View // as rank 1 sees it
	}{
		"job":     {"another", func(v elastic.View) elastic.View { return v }},
		"lineage": {"test", func(v elastic.View) elastic.View { v.Parent[0]++; return v }},
		"voters":  {"test", func(v elastic.View) elastic.View { v.Voters = v.Voters[:1]; return v }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			hs, v := hosts(t, 1, configs()["tls"])
			cfg := configs()["tls"]
			cfg.Job = test.job
			other, w := hosts(t, 1, cfg)
			hs = append(hs, other...)
			v.Members = append(v.Members, w.Members...)
			v.Voters = append(v.Voters, w.Voters...)
			introduce(t, hs, v)
			ctx, cancel := context.WithCancel(within(t, long))
			waiting := make(chan error, 1)
			go func() {
				_, err := hs[0].Connect(ctx, v, 0)
				waiting <- err
			}()
			_, err := hs[1].Connect(ctx, test.view(v), 1)
			var lost *transport.PeerError
			if !errors.As(err, &lost) || lost.Rank != 0 || !strings.Contains(lost.Cause, "refused") {
				t.Errorf("rank 1: %v", err)
			}
			cancel()
			if err := <-waiting; !errors.Is(err, context.Canceled) {
				t.Errorf("rank 0: %v", err)
			}
		})
	}
}

func TestConnectErrors(t *testing.T) {
	hs, v := hosts(t, 3, configs()["tls"])
	if _, err := hs[0].Connect(t.Context(), v, 1); !errors.Is(err, collective.ErrArgument) {
		t.Errorf("another's rank: %v", err)
	}
	if _, err := hs[0].Connect(t.Context(), v, 3); !errors.Is(err, collective.ErrArgument) {
		t.Errorf("no rank: %v", err)
	}
	bad := v
	bad.Members = append(slices.Clone(v.Members), elastic.Member{ID: "nobody"})
	if _, err := hs[0].Connect(t.Context(), bad, 0); err == nil {
		t.Error("connected to an ID that is none")
	}
	ctx := within(t, short)
	_, err := tryConnect(ctx, hs[:2], v) // rank 2 never enters
	var lost *transport.PeerError
	if !errors.As(err, &lost) || lost.Rank != 2 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("rank 2 did not come, and the error is %v", err)
	}
	ts := connect(t, hs, v) // the next attempt succeeds at all ranks
	ring(t, ts)
	closeAll(t, ts)
}

// Ranks that wait for a member notice its death without a deadline, whether the member dies before
// or during the wait.
func TestDeathDuringConnect(t *testing.T) {
	for name, before := range map[string]bool{"before": true, "meanwhile": false} {
		t.Run(name, func(t *testing.T) {
			hs, v := hosts(t, 3, configs()["tls"])
			introduce(t, hs, v)
			for rank := range 2 {
				send(t, hs, 2, rank, "hello")
				wantEvents(t, hs, rank, "2 up", "2 says hello")
			}
			if before {
				if err := hs[2].Close(); err != nil {
					t.Error(err)
				}
				wantEvents(t, hs, 0, "2 down")
				wantEvents(t, hs, 1, "2 down")
			}
			errs := make(chan error)
			for rank := range 2 {
				go func() {
					_, err := hs[rank].Connect(within(t, long), v, rank)
					errs <- err
				}()
			}
			if err := hs[2].Close(); err != nil {
				t.Error(err)
			}
			for range 2 {
				// One rank may see that the other one gives up before it sees the death itself.
				var lost *transport.PeerError
				if err := <-errs; !errors.As(err, &lost) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

// Close interrupts a Connect in progress.
func TestCloseDuringConnect(t *testing.T) {
	hs, v := hosts(t, 2, configs()["tls"])
	done := make(chan error, 1)
	go func() {
		_, err := hs[1].Connect(within(t, long), v, 1)
		done <- err
	}()
	if err := hs[1].Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil {
		t.Error("connected without the other")
	}
	if _, err := hs[1].Connect(t.Context(), v, 1); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("a closed host: %v", err)
	}
}

func TestSendArguments(t *testing.T) {
	hs, v := hosts(t, 2, configs()["tls"])
	ts := connect(t, hs, v)
	for _, to := range []int{-1, 2} {
		if err := ts[0].Send(t.Context(), to, transport.Envelope{}, nil); !errors.Is(err, collective.ErrArgument) {
			t.Errorf("send to %d: %v", to, err)
		}
		ts[0].Signal(to, nil)
	}
	if err := ts[0].Send(t.Context(), 1, transport.Envelope{}, make([]byte, 64<<20+1)); !errors.Is(err, collective.ErrArgument) {
		t.Errorf("a message above the limit: %v", err)
	}
	ts[0].Signal(1, make([]byte, transport.MaxSignal+1))
	ts[0].Revoke(nil)
	if err := ts[1].Recv(within(t, long), 0, transport.Envelope{}, nil); !errors.Is(err, transport.ErrRevoked) {
		t.Errorf("revoked without a cause: %v", err)
	}
	closeAll(t, ts)
}

var _ elastic.Network = (*p2p.Host)(nil)
