// Package cluster runs a function at n ranks inside one test.
//
//	func TestSum(t *testing.T) {
//		cluster.Run(t, 4, func(ctx context.Context, c *collective.Comm) error {
//			sum := []int64{int64(c.Rank())}
//			return collective.AllReduce(ctx, c, sum, sum, collective.Sum[int64])
//		})
//	}
//
// Run uses goroutines and memory, RunP2P goroutines and libp2p over loopback, and
// RunProcesses real processes, started by elrun's own launcher. Start is for groups
// whose members come and die meanwhile (Job). Tests that use this package belong to
// external (_test) packages.
//
// A rank whose function returns an error revokes the communicator, so that the
// others end, too; the test fails with every rank's error.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/transport/mem"
)

// errEnded is what other ranks hear of one whose function did not return.
var errEnded = errors.New("the rank's function ended without returning")

// Run calls f at ranks 0..n-1, each in a goroutine of its own, over a transport in
// memory, and fails t unless all return nil. It works inside a synctest bubble.
func Run(t testing.TB, n int, f func(ctx context.Context, c *collective.Comm) error) {
	t.Helper()
	if err := errors.Join(Errors(t, n, f)...); err != nil {
		t.Fatal(err)
	}
}

// Errors is Run for tests that expect errors: it returns what f returned, by rank,
// marked with the rank, and does not fail t for it.
func Errors(t testing.TB, n int, f func(ctx context.Context, c *collective.Comm) error) []error {
	t.Helper()
	return RunOver(t, endpoints(mem.New(n)), collective.Options{}, f)
}

func endpoints(ts []*mem.Transport) []transport.Transport {
	out := make([]transport.Transport, len(ts))
	for i, e := range ts {
		out[i] = e
	}
	return out
}

// RunOver is Errors over the given transports of ranks 0..n-1, which it closes.
func RunOver(t testing.TB, ts []transport.Transport, o collective.Options, f func(ctx context.Context, c *collective.Comm) error) []error {
	t.Helper()
	comms := make([]*collective.Comm, len(ts))
	for rank, e := range ts {
		c, err := collective.New(e, rank, len(ts), o)
		if err != nil {
			t.Fatal(err)
		}
		comms[rank] = c
	}
	errs := each(len(ts), func(rank int) error { return atRank(t, comms[rank], f) })
	for rank, err := range each(len(ts), func(rank int) error { return comms[rank].Close() }) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	return errs
}

// atRank calls f and revokes unless it returns nil: also when it ends its goroutine, by
// t.FailNow or a panic.
func atRank(t testing.TB, c *collective.Comm, f func(ctx context.Context, c *collective.Comm) error) error {
	err := errEnded
	defer func() {
		if err != nil {
			c.Revoke(err)
		}
	}()
	err = f(t.Context(), c)
	return err
}

// each calls f for 0..n-1 at the same time and returns the errors, marked.
func each(n int, f func(i int) error) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := f(i); err != nil {
				errs[i] = fmt.Errorf("rank %d: %w", i, err)
			}
		})
	}
	all.Wait()
	return errs
}

// RunGroups calls f with n members of one elastic group, in goroutines and memory,
// and fails t unless all return nil. sink, if not nil, takes the events of all.
func RunGroups(t testing.TB, n int, sink event.Sink, f func(ctx context.Context, g *elastic.Group) error) {
	t.Helper()
	network := mem.NewNetwork()
	members := make([]elastic.Member, n)
	for i := range members {
		members[i] = elastic.Member{ID: elastic.ID(fmt.Sprintf("member-%d", i)), Index: i}
	}
	errs := each(n, func(i int) error {
		g, err := elastic.Join(t.Context(), elastic.Config{
			Endpoint: network.Endpoint(members[i]), Peers: members, Sink: sink,
		})
		if err != nil {
			return err
		}
		err = f(t.Context(), g)
		return errors.Join(err, g.Close()) // members that wait for this one get an error
	})
	if err := errors.Join(append(errs, network.Close())...); err != nil {
		t.Fatal(err)
	}
}
