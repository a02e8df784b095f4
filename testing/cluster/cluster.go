// Package cluster runs a function at n ranks inside one test.
//
//	package sum_test
//
//	import (
//		"context"
//		"testing"
//
//		"github.com/elrun/elrun/collective"
//		"github.com/elrun/elrun/testing/cluster"
//	)
//
//	func TestSum(t *testing.T) {
//		cluster.Run(t, 4, func(ctx context.Context, c *collective.Comm) error {
//			sum := []int64{int64(c.Rank())}
//			return collective.AllReduce(ctx, c, sum, sum, collective.Sum[int64])
//		})
//	}
//
// Options of Run say over which network (OverP2P, Over), in which processes (InProcesses), and
// whether errors are expected (MayFail). Start is for groups whose members come and die
// meanwhile (Job). Tests that use this package belong to external (_test) packages.
//
// A rank whose function returns an error revokes the communicator, so that the
// others end, too; the test fails with every rank's error.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/transport/mem"
)

// errEnded is what other ranks hear of one whose function did not return.
var errEnded = errors.New("the rank's function ended without returning")

// Option changes how Run calls the function.
type Option struct{ apply func(*setup) }

// setup is what options say.
type setup struct {
	places     []string // options that say where the ranks are, at most one
	transports func(t testing.TB, n int) []transport.Transport
	processes  bool
	options    collective.Options
	here       []string // options that processes of their own do not take
	mayFail    bool
}

// OverP2P gives every rank a libp2p host of its own, which listens at a free TCP port of the
// loopback interface.
func OverP2P() Option {
	return Option{func(s *setup) {
		s.places = append(s.places, "OverP2P")
		s.transports = func(t testing.TB, n int) []transport.Transport { return NewHosts(t, n).Transports(t) }
	}}
}

// Over gives the ranks these transports, one each, which Run closes.
func Over[T transport.Transport](ts []T) Option {
	return Option{func(s *setup) {
		s.places = append(s.places, "Over")
		s.transports = func(t testing.TB, n int) []transport.Transport {
			t.Helper()
			if n != len(ts) {
				t.Fatalf("cluster: %d ranks over %d transports", n, len(ts))
			}
			return transportsOf(ts)
		}
	}}
}

// InProcesses gives every rank a process of its own, over libp2p, started by elrun's launcher.
// The processes are this test binary, told to run t alone: they do what stands in the test
// before Run once more, and exit after f. The test fails with their output unless all end
// with nil. MayFail and WithOptions do not go with it.
func InProcesses() Option {
	return Option{func(s *setup) {
		s.places = append(s.places, "InProcesses")
		s.processes = true
	}}
}

// WithOptions makes the communicators with these options.
func WithOptions(o collective.Options) Option {
	return Option{func(s *setup) { s.here, s.options = append(s.here, "WithOptions"), o }}
}

// MayFail is for tests that expect errors: Run returns them and does not fail the test.
func MayFail() Option {
	return Option{func(s *setup) { s.here, s.mayFail = append(s.here, "MayFail"), true }}
}

// Run calls f at ranks 0..n-1, each in a goroutine of its own, over a transport in memory, and
// fails t unless all return nil. It works inside a synctest bubble. Options change this.
//
// Run returns what f returned, by rank, marked with the rank: n times nil, but with MayFail. In
// processes of their own there are no errors by rank, and Run returns nil.
func Run(t testing.TB, n int, f func(ctx context.Context, c *collective.Comm) error, options ...Option) []error {
	t.Helper()
	s := setup{transports: func(_ testing.TB, n int) []transport.Transport { return transportsOf(mem.New(n)) }}
	for _, o := range options {
		o.apply(&s)
	}
	switch {
	case len(s.places) > 1:
		t.Fatalf("cluster: ranks are in one place, not in %s", strings.Join(s.places, " and "))
	case s.processes && len(s.here) > 0:
		t.Fatalf("cluster: %s does not go with InProcesses", strings.Join(s.here, ", "))
	case s.processes:
		runProcesses(t, n, f)
		return nil
	}
	errs := runOver(t, s.transports(t, n), s.options, f)
	if err := errors.Join(errs...); err != nil && !s.mayFail {
		t.Fatal(err)
	}
	return errs
}

func transportsOf[T transport.Transport](ts []T) []transport.Transport {
	out := make([]transport.Transport, len(ts))
	for i, one := range ts {
		out[i] = one
	}
	return out
}

// runOver calls f over the transports of ranks 0..n-1, and closes them.
func runOver(t testing.TB, ts []transport.Transport, o collective.Options, f func(ctx context.Context, c *collective.Comm) error) []error {
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
