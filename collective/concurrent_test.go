package collective_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/testing/cluster"
)

// intruders are calls that must not begin while an AllReduce of the same communicator is in
// progress.
func intruders() map[string]func(ctx context.Context, c *collective.Comm) error {
	v := func() []int64 { return make([]int64, 6) }
	return map[string]func(ctx context.Context, c *collective.Comm) error{
		"allreduce": func(ctx context.Context, c *collective.Comm) error {
			w := v()
			return collective.AllReduce(ctx, c, w, w, collective.Sum[int64])
		},
		"barrier by another form": func(ctx context.Context, c *collective.Comm) error {
			return collective.Barrier(ctx, c.With(collective.CallOptions{Algorithm: collective.RecursiveDoubling}))
		},
		"split": func(ctx context.Context, c *collective.Comm) error {
			_, err := collective.Split(ctx, c, 0, 0)
			return err
		},
		"started broadcast": func(ctx context.Context, c *collective.Comm) error {
			return collective.IBroadcast(ctx, c, v(), 0).Wait(ctx)
		},
	}
}

// A call that begins while its communicator is in a blocking call is refused with an error, and all
// ranks get this error: they might have begun the two calls in different orders.
func TestConcurrentCalls(t *testing.T) {
	t.Parallel()
	for where, connect := range everywhere(t, 3) {
		for name, intrude := range intruders() {
			refuses := t.Run(name+"/"+where, func(t *testing.T) {
				var refused error
				errs := cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
					if c.Rank() != 1 {
						return reduceHeld(ctx, c, nil)
					}
					return reduceHeld(ctx, c, func() {
						// A refused call returns at once. If the call is not refused, it waits for
						// the other ranks, which wait for this rank.
						ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
						defer cancel()
						refused = intrude(ctx, c)
					})
				}, cluster.Over(connect()), cluster.MayFail())
				if !errors.Is(refused, collective.ErrConcurrent) || !errors.Is(refused, collective.ErrRevoked) {
					t.Errorf("refused with %v", refused)
				}
				for rank, err := range errs {
					if !isAbort("allreduce int64[3]")(err, 1) || !strings.Contains(err.Error(), "Dup") {
						t.Errorf("rank %d: %v", rank, err)
					}
				}
			})
			if !refuses {
				return // each of the other cases may hang for as long
			}
		}
	}
}

// reduceHeld makes an AllReduce. During its first reduction it calls the function meanwhile in
// another goroutine, unless meanwhile is nil.
func reduceHeld(ctx context.Context, c *collective.Comm, meanwhile func()) error {
	op := collective.NewOp("held", true, func(dst, a, _ []int64) {
		if meanwhile != nil {
			done := make(chan struct{})
			go func() { defer close(done); meanwhile() }()
			<-done
			meanwhile = nil
		}
		copy(dst, a)
	})
	v := make([]int64, 3)
	if err := collective.AllReduce(ctx, c, v, v, op); err != nil {
		return err
	}
	return collective.Barrier(ctx, c) // the AllReduce may have ended before the concurrent call was refused
}

// Calls that are allowed during a blocking call succeed: calls of another communicator, Sends and
// Recvs, and calls that were started before.
func TestBesideBlockingCall(t *testing.T) {
	t.Parallel()
	for where, connect := range everywhere(t, 3) {
		errs := cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
			dup, err := collective.Dup(ctx, c)
			if err != nil {
				return err
			}
			before := collective.IBarrier(ctx, c)
			right, left := (c.Rank()+1)%c.Size(), (c.Rank()+2)%c.Size()
			others := make(chan error)
			go func() {
				h := collective.ISend(ctx, c, right, 7, []int64{1})
				others <- errors.Join(collective.Recv(ctx, c, left, 7, make([]int64, 1)), h.Wait(ctx), collective.Barrier(ctx, dup))
			}()
			var other error
			if c.Rank() == 0 {
				other = <-others // while the other ranks are in the AllReduce
			}
			v := []int64{1}
			err = collective.AllReduce(ctx, c, v, v, collective.Sum[int64])
			if c.Rank() > 0 {
				other = <-others
			}
			return errors.Join(err, other, before.Wait(ctx))
		}, cluster.Over(connect()), cluster.MayFail())
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
}

// everywhere returns constructors of transports for n ranks, one for each kind of transport that
// works within one process.
func everywhere(t *testing.T, n int) map[string]func() []transport.Transport {
	t.Helper()
	hosts := cluster.NewHosts(t, n)
	all := map[string]func() []transport.Transport{
		"memory": func() []transport.Transport { return overMemory(n) },
		"shared": func() []transport.Transport { return sharing(t, n) },
		"p2p":    func() []transport.Transport { return hosts.Transports(t) },
	}
	if n == 3 {
		all["hosts"] = func() []transport.Transport { return sharing(t, 2, 1) }
	}
	return all
}

// Close of a communicator from Split or Dup ends only that communicator and the communicators made
// from it.
func TestCloseOfPart(t *testing.T) {
	t.Parallel()
	for where, connect := range everywhere(t, 3) {
		errs := cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
			dup, err := collective.Dup(ctx, c)
			if err != nil {
				return err
			}
			part, err := collective.Split(ctx, dup, c.Rank()/2, 0)
			if err != nil {
				return err
			}
			if err := errors.Join(collective.Barrier(ctx, part), collective.Barrier(ctx, dup), part.Close(), part.Close()); err != nil {
				return err
			}
			if err := errors.Join(isClosed(ctx, part), isClosed(ctx, part.With(collective.CallOptions{Algorithm: collective.Ring}))); err != nil {
				return err
			}
			again, err := collective.Dup(ctx, dup)
			if err != nil {
				return fmt.Errorf("after the part was closed: %w", err)
			}
			if err := errors.Join(dup.With(collective.CallOptions{For: "close"}).Close(), isClosed(ctx, dup), isClosed(ctx, again)); err != nil {
				return err
			}
			return collective.Barrier(ctx, c)
		}, cluster.Over(connect()), cluster.MayFail())
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
}

// A rank that waits in a call for a rank that has closed the communicator gets an error. A
// call that was in progress at Close continues.
func TestCallAfterCloseOfPart(t *testing.T) {
	t.Parallel()
	places := everywhere(t, 3)
	for name, call := range map[string]func(ctx context.Context, c *collective.Comm) error{
		"barrier": func(ctx context.Context, c *collective.Comm) error { return collective.Barrier(ctx, c) },
		"recv": func(ctx context.Context, c *collective.Comm) error {
			return collective.Recv(ctx, c, 0, 1, make([]int64, 1))
		},
	} {
		for where, connect := range places {
			errs := cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
				return closeBeforeCall(ctx, c, call)
			}, cluster.Over(connect()), cluster.MayFail())
			for rank, err := range errs {
				if !isAbort("closed the communicator")(err, 0) {
					t.Errorf("%s %s: rank %d: %v", where, name, rank, err)
				}
			}
		}
	}
}

// closeBeforeCall closes a communicator at rank 0 while the other ranks make a call on it.
func closeBeforeCall(ctx context.Context, c *collective.Comm, call func(context.Context, *collective.Comm) error) error {
	dup, err := collective.Dup(ctx, c)
	if err != nil {
		return err
	}
	if c.Rank() > 0 {
		return call(ctx, dup)
	}
	v := make([]int64, 1)
	before := collective.IRecv(ctx, dup, 0, 5, v)
	started := collective.ISend(ctx, dup, 0, 5, []int64{1})
	if err := errors.Join(dup.Close(), before.Wait(ctx), started.Wait(ctx)); err != nil {
		return err
	}
	return collective.Barrier(ctx, c)
}
