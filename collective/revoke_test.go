package collective_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/transport/mem"
)

// stop is a way to end the communicators of all ranks. do ends them at the rank of c, whose
// endpoint is e, and returns the error of the call that it makes there.
type stop struct {
	name string
	do   func(ctx context.Context, c *collective.Comm, e *mem.Transport) error
	// own and others check the error at the rank itself, and at another rank.
	own, others func(err error, deviant int) bool
}

func isAbort(text string) func(error, int) bool {
	return func(err error, deviant int) bool {
		var a *collective.AbortError
		return errors.As(err, &a) && a.Rank == deviant && strings.Contains(a.Cause, text)
	}
}

func isPeer(err error, deviant int) bool {
	var p *collective.PeerError
	return errors.As(err, &p) && p.Rank == deviant && errors.Is(err, collective.ErrPeer)
}

func is(target error) func(error, int) bool {
	return func(err error, _ int) bool { return errors.Is(err, target) }
}

func stops() []stop {
	return []stop{
		{"cancelled before the call", func(ctx context.Context, c *collective.Comm, _ *mem.Transport) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return collective.AllReduce(ctx, c, []int8{1}, []int8{1}, collective.Sum[int8])
		}, is(context.Canceled), isAbort("context canceled")},
		{"cancelled in the call", func(ctx context.Context, c *collective.Comm, _ *mem.Transport) error {
			ctx, cancel := context.WithCancelCause(ctx)
			h := collective.IRecv(ctx, c, (c.Rank()+1)%c.Size(), 1, make([]int8, 1))
			synctest.Wait()
			cancel(errTired)
			return h.Wait(context.Background())
		}, is(errTired), isAbort("tired")},
		{"bad argument", func(ctx context.Context, c *collective.Comm, _ *mem.Transport) error {
			return collective.AllReduce(ctx, c, []int8{1}, []int8{1, 2}, collective.Sum[int8])
		}, is(collective.ErrArgument), isAbort("dst has 1 elements, want 2")},
		{"bad argument of a non-blocking call", func(ctx context.Context, c *collective.Comm, _ *mem.Transport) error {
			return collective.IBroadcast(ctx, c, []int8{1}, 99).Wait(ctx)
		}, is(collective.ErrArgument), isAbort("root 99")},
		{"revoked by the user", func(ctx context.Context, c *collective.Comm, _ *mem.Transport) error {
			c.Revoke(errTired)
			return collective.Barrier(ctx, c)
		}, isAbort("tired"), isAbort("tired")},
		{"revoked for no reason", func(ctx context.Context, c *collective.Comm, _ *mem.Transport) error {
			c.Revoke(nil)
			return collective.Barrier(ctx, c)
		}, isAbort(""), isAbort("")},
		{"killed", func(ctx context.Context, c *collective.Comm, e *mem.Transport) error {
			e.Kill()
			return collective.Barrier(ctx, c)
		}, is(collective.ErrClosed), isPeer},
		{"closed", func(ctx context.Context, c *collective.Comm, _ *mem.Transport) error {
			return errors.Join(c.Close(), collective.Barrier(ctx, c))
		}, is(collective.ErrClosed), isPeer},
	}
}

var errTired = errors.New("tired")

// overMem is cluster.Run that also passes the endpoints to f.
func overMem(t *testing.T, n int, f func(ctx context.Context, c *collective.Comm, e *mem.Transport) error) []error {
	t.Helper()
	ends := mem.New(n)
	return cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error {
		ctx, cancel := context.WithTimeout(ctx, hang)
		defer cancel()
		return f(ctx, c, ends[c.Rank()])
	}, cluster.Over(ends), cluster.MayFail())
}

// Whatever ends one communicator at one rank, all calls in progress and all later calls of all
// communicators fail at all ranks with an error that names the cause.
func TestRevocationReachesAll(t *testing.T) {
	const n = 4
	for _, s := range stops() {
		for deviant := range n {
			t.Run(fmt.Sprintf("%s at %d", s.name, deviant), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					for _, err := range overMem(t, n, func(ctx context.Context, c *collective.Comm, e *mem.Transport) error {
						return stopped(ctx, c, e, s, deviant)
					}) {
						if err != nil {
							t.Error(err)
						}
					}
				})
			})
		}
	}
}

// stopped is one rank's part of TestRevocationReachesAll. It returns nil if the rank
// behaved as expected.
func stopped(ctx context.Context, c *collective.Comm, e *mem.Transport, s stop, deviant int) error {
	dup, err := collective.Dup(ctx, c)
	if err != nil {
		return err
	}
	split, err := collective.Split(ctx, c, 0, -c.Rank())
	if err != nil {
		return err
	}
	fails := s.others
	errs := make(map[string]error)
	if c.Rank() == deviant {
		synctest.Wait() // until all other ranks are in their calls
		fails = s.own
		errs["the call itself"] = s.do(ctx, c, e)
	} else {
		v := make([]float64, 5)
		pending := collective.IAllReduce(ctx, dup, v, v, collective.Sum[float64])
		receive := collective.IRecv(ctx, split, split.Size()-1-deviant, 9, make([]int8, 1))
		errs["blocking call"] = collective.Barrier(ctx, c)
		errs["call on a duplicate"] = pending.Wait(ctx)
		errs["receive on a part"] = receive.Wait(ctx)
	}
	c.Revoke(errors.New("too late")) // the first cause stays
	if c.Rank() != deviant && !s.others(c.Err(), deviant) {
		return fmt.Errorf("the communicator's cause: %w", orMissing(c.Err()))
	}
	errs["later call"] = collective.Barrier(ctx, dup)
	errs["later start"] = collective.ISend(ctx, split, 0, 1, []int8{1}).Wait(ctx)
	for what, err := range errs {
		later := strings.HasPrefix(what, "later")
		if !errors.Is(err, collective.ErrRevoked) || !later && !fails(err, deviant) || c.Rank() != deviant && !s.others(err, deviant) {
			return fmt.Errorf("%s: %w", what, orMissing(err))
		}
	}
	return nil
}

// orMissing turns a nil error into an error.
func orMissing(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

// Close ends all calls in progress, waits for them, and can be called again; nothing runs
// afterwards.
func TestClose(t *testing.T) {
	for range 50 { // repeated, as Close returns before the handle of a call is done only in few runs of a wrong implementation
		synctest.Test(t, testClose)
	}
}

func testClose(t *testing.T) {
	errs := overMem(t, 3, func(ctx context.Context, c *collective.Comm, _ *mem.Transport) error {
		dup, err := collective.Dup(ctx, c)
		if err != nil || c.Rank() > 0 {
			return err
		}
		h := collective.IRecv(ctx, dup, 1, 1, make([]int8, 1))
		synctest.Wait()
		if err := c.Close(); err != nil {
			return err
		}
		select {
		case <-h.Done():
		default:
			return errors.New("Close returned before the call in progress")
		}
		if err := h.Wait(ctx); !errors.Is(err, collective.ErrClosed) || !errors.Is(err, collective.ErrRevoked) {
			return orMissing(err)
		}
		return errors.Join(isClosed(ctx, c), isClosed(ctx, dup), c.Close(), dup.Close())
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// isClosed returns an error unless calls of c fail as on a closed communicator.
func isClosed(ctx context.Context, c *collective.Comm) error {
	for _, err := range []error{collective.Barrier(ctx, c), collective.IBarrier(ctx, c).Wait(ctx)} {
		if !errors.Is(err, collective.ErrClosed) || !errors.Is(err, collective.ErrRevoked) {
			return orMissing(err)
		}
	}
	return nil
}

// A rank that has completed its part may close while other ranks still read its messages.
func TestCloseDisturbsNobody(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			cluster.Run(t, 5, func(ctx context.Context, c *collective.Comm) error {
				v := make([]int64, 1000)
				if err := collective.AllReduce(ctx, c, v, v, collective.Sum[int64]); err != nil {
					return err
				}
				return c.Close()
			})
		})
	}
}

// A panic in a user's reduction propagates at its rank and ends the call at all other ranks.
func TestPanicInReduction(t *testing.T) {
	for _, r := range reducing() {
		for _, a := range r.algorithms[1:] {
			for n := 2; n <= 5; n++ {
				t.Run(fmt.Sprintf("%s by %v at %d ranks", r.kind, a, n), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { panicInReduction(t, n, way{r.kind, a}) })
				})
			}
		}
	}
}

// panicInReduction lets the last rank panic, if it has something to reduce.
func panicInReduction(t *testing.T, n int, w way) {
	panicked := false
	errs := overMem(t, n, func(ctx context.Context, c *collective.Comm, _ *mem.Transport) error {
		broken := collective.NewOp("broken", true, func(dst, a, b []int32) {
			if c.Rank() == n-1 {
				panic("of the user")
			}
			copy(dst, a)
		})
		defer func() {
			if c.Rank() == n-1 {
				panicked = recover() != nil
			}
		}()
		err := callInt32(ctx, c, w.kind, args{length: 3000, algorithm: w.algorithm, op: broken})
		if err != nil {
			return err
		}
		return collective.Barrier(ctx, c) // the other ranks may have got all messages that they need before the panic
	})
	if !panicked && errors.Join(errs...) != nil {
		t.Errorf("without a panic: %v", errs)
	}
	for rank, err := range errs[:n-1] {
		if panicked && !isAbort("panic")(err, n-1) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}
