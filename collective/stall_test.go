package collective_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
)

// stalls runs f over the gates and returns the stalls that all ranks reported.
func (g *gates) stalls(t *testing.T, f func(ctx context.Context, c *collective.Comm) error) []collective.Stall {
	t.Helper()
	reports := make(chan collective.Stall, 1000)
	o := collective.Options{OnStall: func(s collective.Stall) { reports <- s }}
	if err := errors.Join(cluster.RunOver(t, g.transports(), o, f)...); err != nil {
		t.Fatal(err)
	}
	close(reports)
	var all []collective.Stall
	for s := range reports {
		all = append(all, s)
	}
	return all
}

// after waits for d in virtual time.
func after(d time.Duration) { <-time.After(d) }

// A rank that does not call is named by all who wait for it, again and again at growing
// intervals, until it comes.
func TestStallNamesMissingRank(t *testing.T) {
	for n := 2; n <= 5; n++ {
		for _, kind := range kinds() {
			synctest.Test(t, func(t *testing.T) {
				all := newGates(n).stalls(t, func(ctx context.Context, c *collective.Comm) error {
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
				if want := 3 * (n - 1); len(all) != want { // after 2, 4 and 8 seconds
					t.Errorf("%s at %d ranks: %d reports, want %d", kind, n, len(all), want)
				}
			})
		}
	}
}

// A rank whose watch does not answer is told apart from one that does not call.
func TestStallWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGates(3)
		g.mute = true
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
			if s.Phase != "no answer" || len(s.Culprits) != 2 {
				t.Errorf("got %v", s)
			}
		}
	})
}

// Where all are in the call, the one is named from which a message is wanted.
func TestStallOfSlowMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGates(3)
		g.slow = func(e collective.Envelope) bool { return e.Call.Kind == collective.KindBroadcast }
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

// A Recv in vain names the rank that does not send.
func TestStallOfRecv(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newGates(3).stalls(t, func(ctx context.Context, c *collective.Comm) error {
			switch c.Rank() {
			case 0:
				return collective.Recv(ctx, c, 2, 4, make([]int8, 1))
			case 2:
				after(5 * time.Second)
				return collective.Send(ctx, c, 0, 4, make([]int8, 1))
			}
			return nil
		})
		if len(all) != 2 { // after 2 and 4 seconds
			t.Fatalf("got %v", all)
		}
		for _, s := range all {
			if !slices.Equal(s.Culprits, []int{2}) || s.Waiting != 2 || s.Phase != "not in the call" {
				t.Errorf("got %v", s)
			}
		}
	})
}

// Who has seen long waits that ended well is in no hurry to complain.
func TestStallLimitLearns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newGates(2).stalls(t, func(ctx context.Context, c *collective.Comm) error {
			for _, pause := range []time.Duration{1500 * time.Millisecond, 5 * time.Second} {
				if c.Rank() == 1 {
					after(pause)
				}
				if err := collective.Barrier(ctx, c); err != nil {
					return err
				}
			}
			return nil
		})
		if len(all) > 0 {
			t.Errorf("got %v", all)
		}
	})
}
