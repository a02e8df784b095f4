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
// The options of Run choose the network (OverP2P, Over), separate processes (InProcesses), and whether errors are expected
// (MayFail). Start is for groups whose members join and die during the test (Job). Tests that use this package must be in
// external (_test) packages.
//
// If the function returns an error at a rank, this rank revokes the communicator, so that the other ranks end too. The test fails
// with the errors of all ranks. It also fails, with an error that names the rank, if a rank returns while others wait for its next
// call.
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

// errEnded is the error of a rank whose function ended its goroutine without returning.
var errEnded = errors.New("the rank's function ended without returning")

// Option changes how Run calls the function.
type Option struct{ apply func(*setup) }

// setup has the values that the options set.
type setup struct {
	places     []string // names of the given options that choose where the ranks run; at most one is valid
	transports func(t testing.TB, n int) []transport.Transport
	processes  bool
	options    collective.Options
	here       []string // names of the given options that cannot be used together with InProcesses
	mayFail    bool
}

// OverP2P gives every rank a host of package p2p, which listens on a free TCP port of the loopback interface. Data takes the best
// kind of path, on one machine shared memory; NewHostsBy chooses another kind.
func OverP2P() Option {
	return Option{func(s *setup) {
		s.places = append(s.places, "OverP2P")
		s.transports = func(t testing.TB, n int) []transport.Transport { return NewHosts(t, n).Transports(t) }
	}}
}

// Over connects the ranks by the given transports, one for each rank. Run closes them.
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

// InProcesses runs every rank in a process of its own, over libp2p. elrun's launcher starts the
// processes. Each of them is this test binary and runs only the test t: it repeats the part of the
// test before Run, calls f, and exits. The test fails with the output of the processes unless f
// returns nil in all of them. MayFail and WithOptions cannot be used together with InProcesses.
func InProcesses() Option {
	return Option{func(s *setup) {
		s.places = append(s.places, "InProcesses")
		s.processes = true
	}}
}

// WithOptions sets the options of the communicators.
func WithOptions(o collective.Options) Option {
	return Option{func(s *setup) { s.here, s.options = append(s.here, "WithOptions"), o }}
}

// MayFail is for tests that expect errors. Run returns the errors and does not fail the test.
func MayFail() Option {
	return Option{func(s *setup) { s.here, s.mayFail = append(s.here, "MayFail"), true }}
}

// Run calls f at ranks 0..n-1, each in a goroutine of its own, over a transport in memory. It fails t unless every call returns
// nil. It works inside a synctest bubble. The options change these defaults.
//
// Run returns the error of each rank, with the rank in its text. Without MayFail all of them are nil. With InProcesses there are
// no errors by rank, and Run returns nil.
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

// atRank calls f. It revokes the communicator unless f returns nil, even if f ends its goroutine by t.FailNow or a panic. If f
// returns nil, a rank that waits for a further call of this rank gets an error that names this rank.
func atRank(t testing.TB, c *collective.Comm, f func(ctx context.Context, c *collective.Comm) error) error {
	err := errEnded
	defer func() {
		if err != nil {
			c.Revoke(err)
		}
	}()
	if err = f(t.Context(), c); err == nil {
		c.Finish()
	}
	return err
}

// each calls f for ranks 0..n-1 at the same time. It returns the errors, with the rank in their
// text.
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
