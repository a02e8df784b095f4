package collective_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/testing/cluster"
)

// stalls runs f over the slow network and returns the stalls that all ranks reported.
func (g *slowNetwork) stalls(t *testing.T, f func(ctx context.Context, c *collective.Comm) error) []collective.Stall {
	t.Helper()
	reports := make(chan collective.Stall, 1000)
	o := collective.Options{OnStall: func(s collective.Stall) { reports <- s }}
	cluster.Run(t, len(g.ends), f, cluster.Over(g.transports()), cluster.WithOptions(o))
	close(reports)
	var all []collective.Stall
	for s := range reports {
		all = append(all, s)
	}
	return all
}

// after waits for d in virtual time.
func after(d time.Duration) { <-time.After(d) }

// All ranks that wait for a rank that is not in the call report it repeatedly, at growing
// intervals, until it begins the call.
func TestStallNamesMissingRank(t *testing.T) {
	for n := 2; n <= 5; n++ {
		for _, kind := range kinds() {
			synctest.Test(t, func(t *testing.T) {
				all := newSlowNetwork(n).stalls(t, func(ctx context.Context, c *collective.Comm) error {
					if c.Rank() == n-1 {
						after(10 * time.Second)
					}
					return callInt32(ctx, c, kind, usual())
				})
				for _, s := range all {
					if !slices.Equal(s.Culprits, []int{n - 1}) || s.Phase != "not in the call" || s.Since < time.Second {
						t.Errorf("%s at %d ranks: %v", kind, n, s)
					}
					if s.Call.Kind.String() != kind || !strings.Contains(s.String(), kind) {
						t.Errorf("%s at %d ranks: call %v", kind, n, s)
					}
				}
				if want := 4 * (n - 1); len(all) != want { // after 1, 2, 4 and 8 seconds
					t.Errorf("%s at %d ranks: %d reports, want %d", kind, n, len(all), want)
				}
			})
		}
	}
}

// The phase of a stall distinguishes a rank whose watchdog does not answer from a rank that is not
// in the call.
func TestStallWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newSlowNetwork(3)
		g.lose = func(int, int) bool { return true }
		all := g.stalls(t, func(ctx context.Context, c *collective.Comm) error {
			if c.Rank() == 2 {
				after(3 * time.Second)
			}
			return collective.Barrier(ctx, c)
		})
		if len(all) == 0 {
			t.Fatal("no report")
		}
		for _, s := range all {
			if s.Phase != "no answer" || !slices.Equal(s.Culprits, []int{2}) {
				t.Errorf("got %v", s)
			}
		}
	})
}

// If all ranks are in the call, the sender of the awaited message is named.
func TestStallOfSlowMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newSlowNetwork(3)
		g.slow = func(e transport.Envelope) bool { return e.Call.Kind == transport.KindBroadcast }
		all := g.stalls(t, func(ctx context.Context, c *collective.Comm) error {
			return collective.Broadcast(ctx, c, make([]int8, 5), 0)
		})
		named := false
		for _, s := range all {
			named = named || s.Phase == "in the call" && s.Waiting == 0 && slices.Equal(s.Culprits, []int{0})
			if s.Phase != "in the call" {
				t.Errorf("got %v", s)
			}
		}
		if !named {
			t.Errorf("rank 0 is not named: %v", all)
		}
	})
}

// The stall of a Recv without a Send names the rank that does not send.
func TestStallOfRecv(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newSlowNetwork(3).stalls(t, func(ctx context.Context, c *collective.Comm) error {
			switch c.Rank() {
			case 0:
				return collective.Recv(ctx, c, 2, 4, make([]int8, 1))
			case 2:
				after(5 * time.Second)
				return collective.Send(ctx, c, 0, 4, make([]int8, 1))
			}
			return nil
		})
		if len(all) != 3 { // after 1, 2 and 4 seconds
			t.Fatalf("got %v", all)
		}
		for _, s := range all {
			if !slices.Equal(s.Culprits, []int{2}) || s.Waiting != 2 || s.Phase != "not in the call" || s.Quiet < time.Second {
				t.Errorf("got %v", s)
			}
		}
	})
}

// A rank is not silent if only some of its signals are lost.
func TestStallWithLostSignals(t *testing.T) {
	for first := range 4 {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			sent := make(map[[2]int]int)
			g := newSlowNetwork(4)
			g.lose = func(from, to int) bool { // loses every fourth signal of each pair
				mu.Lock()
				defer mu.Unlock()
				sent[[2]int{from, to}]++
				return (sent[[2]int{from, to}]+first)%4 == 0
			}
			all := g.stalls(t, func(ctx context.Context, c *collective.Comm) error {
				if c.Rank() == 2 {
					after(4 * time.Second)
				}
				return collective.Barrier(ctx, c)
			})
			for _, s := range all {
				if !slices.Equal(s.Culprits, []int{2}) {
					t.Errorf("from %d on: %v", first, s)
				}
			}
			if len(all) != 6 { // after 1 and 2 seconds
				t.Errorf("from %d on: %v", first, all)
			}
		})
	}
}

// Rank 0 is not in the call because it waits for rank 2 in another communicator, of which
// rank 1 is no member: rank 2 is blamed.
func TestStallInAnotherCommunicator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newSlowNetwork(4).stalls(t, func(ctx context.Context, c *collective.Comm) error {
			odd, err := collective.Split(ctx, c, min(c.Rank(), 2)&1, 0) // 0, 2 and 3; 1
			if err != nil {
				return err
			}
			pair, err := collective.Split(ctx, c, c.Rank()/2, 0) // 0 and 1; 2 and 3
			if err != nil {
				return err
			}
			if c.Rank() == 2 {
				after(3 * time.Second)
			}
			if err := collective.Barrier(ctx, odd); err != nil {
				return err
			}
			return collective.Barrier(ctx, pair)
		})
		if len(all) != 6 { // ranks 0, 1 and 3 after 1 and 2 seconds
			t.Errorf("got %v", all)
		}
		for _, s := range all {
			if !slices.Equal(s.Culprits, []int{2}) || s.Phase != collective.PhaseAbsent {
				t.Errorf("got %v", s)
			}
		}
	})
}

// If several calls wait for the same rank, there is one report.
func TestStallOfManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newSlowNetwork(3).stalls(t, func(ctx context.Context, c *collective.Comm) error {
			if c.Rank() == 2 {
				after(3 * time.Second)
			}
			var calls []*collective.Handle
			for i := range 5 {
				v := make([]int32, 10)
				calls = append(calls, collective.IAllReduce(ctx, c.With(collective.CallOptions{For: fmt.Sprintf("bucket %d", i)}), v, v, collective.Sum[int32]))
				after(20 * time.Millisecond)
			}
			var errs []error
			for _, h := range calls {
				errs = append(errs, h.Wait(ctx))
			}
			return errors.Join(errs...)
		})
		if len(all) != 4 { // ranks 0 and 1 after 1 and 2 seconds
			t.Errorf("got %v", all)
		}
		for _, s := range all {
			if s.For != "bucket 0" || s.Name() != "bucket 0, allreduce int32[10] sum by recursive-doubling" {
				t.Errorf("got %v", s)
			}
		}
	})
}

// Calls that each take less than the limit are a stall if together they make a step too
// long.
func TestStallOfStep(t *testing.T) {
	for _, steps := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			reports := make(chan collective.Stall, 100)
			var step atomic.Int64
			o := collective.Options{OnStall: func(s collective.Stall) { reports <- s }}
			if steps {
				o.Step = step.Load
			}
			err := errors.Join(cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
				for i := range 100 {
					slow := i >= 50 && i < 55
					if c.Rank() == 1 && slow {
						after(600 * time.Millisecond)
					} else {
						after(20 * time.Millisecond)
					}
					if err := collective.Barrier(ctx, c); err != nil {
						return err
					}
					if c.Rank() == 0 && i%10 == 9 {
						step.Store(int64(i))
					}
				}
				return nil
			}, cluster.Over(newSlowNetwork(2).transports()), cluster.WithOptions(o), cluster.MayFail())...)
			if err != nil {
				t.Fatal(err)
			}
			want := 0
			if steps {
				want = 2 // after 1 and 2 of 3 seconds
			}
			if len(reports) != want {
				t.Fatalf("%d reports, want %d", len(reports), want)
			}
			for range want {
				if s := <-reports; !slices.Equal(s.Culprits, []int{1}) || s.Since < time.Second || s.Quiet > time.Second {
					t.Errorf("got %v", s)
				}
			}
		})
	}
}

// Long waits that recur are no longer reported after a while.
func TestStallLimitAdapts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newSlowNetwork(2).stalls(t, func(ctx context.Context, c *collective.Comm) error {
			for range 50 {
				if c.Rank() == 1 {
					after(1500 * time.Millisecond)
				}
				if err := collective.Barrier(ctx, c); err != nil {
					return err
				}
			}
			return nil
		})
		if len(all) < 1 || len(all) > 10 {
			t.Errorf("%d reports of 50 waits: %v", len(all), all)
		}
	})
}

// Ranks that wait for each other in calls on different communicators are reported as a deadlock, in
// the order of their waits, before the calls end: here Recvs and a barrier.
func TestStallOfDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reports := make(chan collective.Stall, 100)
		o := collective.Options{OnStall: func(s collective.Stall) { reports <- s }}
		cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
			pair, err := collective.Split(ctx, c, c.Rank()/2, 0) // 0 and 1; 2
			if err != nil {
				return err
			}
			if c.Rank() == 0 {
				return collective.Barrier(ctx, pair)
			}
			return collective.Recv(ctx, c, (c.Rank()+1)%c.Size(), 3, make([]int8, 1))
		}, cluster.MayFail(), cluster.WithOptions(o), cluster.Over(newSlowNetwork(3).transports()))
		close(reports)
		if len(reports) == 0 {
			t.Error("no report")
		}
		for s := range reports {
			if s.Phase != collective.PhaseDeadlock || !slices.Equal(s.Culprits, []int{0, 1, 2}) {
				t.Errorf("got %v", s)
			}
		}
	})
}
