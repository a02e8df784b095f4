package collective_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/internal/shm"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/transport/mem"
)

// The whole matrix in shared memory gives the same bits as messages do.
func TestMatrixInMemory(t *testing.T) {
	t.Parallel()
	for _, n := range ranks() {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			runJobs(t, sharing(t, n), collective.Options{}, matrix(n, lengths(n, 1000, 3*shm.Inline/8+n)))
		})
	}
}

// The whole matrix gives the same bits with two levels, on several hosts. Some of the hosts have
// several ranks.
func TestMatrixOfHosts(t *testing.T) {
	t.Parallel()
	for _, perHost := range [][]int{{2, 2}, {3, 1}, {1, 1, 2}, {4, 3, 2}} {
		n := 0
		for _, ranks := range perHost {
			n += ranks
		}
		if racing && n > 4 {
			continue
		}
		t.Run(fmt.Sprint(perHost), func(t *testing.T) {
			runJobs(t, sharing(t, perHost...), collective.Options{}, matrix(n, lengths(n, 1000, 3*shm.Inline/8+n)))
		})
	}
}

// overShared runs f at n ranks that share memory.
func overShared(t *testing.T, n int, f func(ctx context.Context, c *collective.Comm) error) {
	t.Helper()
	cluster.Run(t, n, f, cluster.Over(sharing(t, n)))
}

// allocated returns vectors in the shared memory or on the heap.
func allocated(c *collective.Comm, n int, shared bool) (dst, src []int64, err error) {
	if !shared {
		return make([]int64, n), make([]int64, n), nil
	}
	if dst, err = collective.Alloc[int64](c, n); err != nil {
		return nil, nil, err
	}
	src, err = collective.Alloc[int64](c, n)
	return dst, src, err
}

// Vectors of many blocks give the right result, in shared memory, elsewhere and mixed
// between ranks, in place, and for reductions that do not commute.
func TestLongInMemory(t *testing.T) {
	t.Parallel()
	const most = 200_003
	for _, n := range []int{2, 3, 5} {
		overShared(t, n, func(ctx context.Context, c *collective.Comm) error {
			for k, where := range []func(rank int) bool{
				func(int) bool { return false }, func(int) bool { return true }, func(rank int) bool { return rank > 0 },
			} {
				dst, src, err := allocated(c, most, where(c.Rank()))
				if err != nil {
					return err
				}
				for _, length := range []int{1, shm.Inline / 8, shm.Inline/8 + 1, 65_536, most} {
					err := errors.Join(reduceLong(ctx, c, dst[:length], src[:length]), reduceLong(ctx, c, dst[:length], dst[:length]))
					if err != nil {
						return fmt.Errorf("place %d, length %d: %w", k, length, err)
					}
				}
				if err := errors.Join(collective.Free(c, dst), collective.Free(c, src)); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// reduceLong reduces vectors by an operation that does not commute, and checks the whole
// result.
func reduceLong(ctx context.Context, c *collective.Comm, dst, src []int64) error {
	affine := collective.NewOp("affine", false, func(dst, a, b []int64) {
		for i := range dst {
			dst[i] = compose(a[i], b[i])
		}
	})
	input := func(rank, i int) int64 { return int64(rank+1)<<32 | int64(i*(rank+3)) }
	for i := range src {
		src[i] = input(c.Rank(), i)
	}
	if err := collective.AllReduce(ctx, c, dst, src, affine); err != nil {
		return err
	}
	for i, got := range dst {
		want := input(0, i)
		for r := 1; r < c.Size(); r++ {
			want = compose(want, input(r, i))
		}
		if got != want {
			return fmt.Errorf("element %d: %x, want %x", i, got, want)
		}
	}
	return nil
}

// Non-blocking calls on one communicator and on its children, which share the memory, do not
// disturb each other, also if ranks start them at different times.
func TestManyInMemory(t *testing.T) {
	t.Parallel()
	overShared(t, 4, func(ctx context.Context, c *collective.Comm) error {
		comms := []*collective.Comm{c}
		for i := range shm.Lanes + 1 { // there is no lane for the last ones
			d, err := collective.Split(ctx, c, (c.Rank()+i)%2, 0)
			if err != nil {
				return err
			}
			comms = append(comms, d)
		}
		var handles []*collective.Handle
		var results [][]int64
		for i := range 60 {
			d := comms[i%len(comms)]
			v := make([]int64, 1+i*i*7)
			for j := range v {
				v[j] = int64(c.Rank() + j)
			}
			results = append(results, v)
			handles = append(handles, collective.IAllReduce(ctx, d, v, v, collective.Max[int64]))
		}
		for i, h := range handles {
			if err := h.Wait(ctx); err != nil {
				return err
			}
			highest := int64(3)
			if k := i % len(comms); k > 0 && (c.Rank()+k-1)%2 != (3+k-1)%2 {
				highest = 2
			}
			for j, got := range results[i] {
				if got != highest+int64(j) {
					return fmt.Errorf("call %d element %d: %d, want %d", i, j, got, highest+int64(j))
				}
			}
		}
		return nil
	})
}

// If ranks make different calls in shared memory, every rank gets an error at once that names both
// calls.
func TestMismatchInMemory(t *testing.T) {
	t.Parallel()
	calls := map[string]func(ctx context.Context, c *collective.Comm, v []int64) error{
		"length": func(ctx context.Context, c *collective.Comm, v []int64) error {
			return collective.AllReduce(ctx, c, v[1:], v[1:], collective.Sum[int64])
		},
		"operation": func(ctx context.Context, c *collective.Comm, v []int64) error {
			return collective.AllReduce(ctx, c, v, v, collective.Max[int64])
		},
		"kind": func(ctx context.Context, c *collective.Comm, v []int64) error {
			return collective.Broadcast(ctx, c, v, 0)
		},
		"way": func(ctx context.Context, c *collective.Comm, v []int64) error {
			return collective.AllToAll(ctx, c, make([]int64, len(v)), v)
		},
	}
	for name, other := range calls {
		for _, length := range []int{6, 6000} {
			errs := cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
				ctx, cancel := context.WithTimeout(ctx, hang)
				defer cancel()
				v := make([]int64, length)
				if c.Rank() == 1 {
					return other(ctx, c, v)
				}
				return collective.AllReduce(ctx, c, v, v, collective.Sum[int64])
			}, cluster.Over(sharing(t, 3)), cluster.MayFail())
			for rank, err := range errs {
				if !errors.Is(err, collective.ErrMismatch) {
					t.Errorf("%s %d: rank %d: %v, want a mismatch", name, length, rank, err)
				}
			}
		}
	}
}

// Whatever ends a rank also ends the calls of the ranks that wait for it in shared memory.
func TestEndInMemory(t *testing.T) {
	t.Parallel()
	ends := map[string]struct {
		end  func(c *collective.Comm, e transport.Transport) error
		want error
	}{
		"revoke": {func(c *collective.Comm, _ transport.Transport) error { c.Revoke(errors.New("enough")); return nil }, collective.ErrRevoked},
		"close":  {func(c *collective.Comm, _ transport.Transport) error { return c.Close() }, collective.ErrPeer},
		"death": {func(_ *collective.Comm, e transport.Transport) error {
			e.(interface{ Kill() }).Kill()
			return nil
		}, collective.ErrPeer},
		"error": {func(*collective.Comm, transport.Transport) error { return errors.New("the user's") }, collective.ErrRevoked},
	}
	for name, e := range ends {
		for _, length := range []int{5, 50_000} {
			ts := sharing(t, 3)
			errs := cluster.Run(t, len(ts), func(ctx context.Context, c *collective.Comm) error {
				v := make([]int64, length)
				if err := collective.AllReduce(ctx, c, v, v, collective.Sum[int64]); err != nil {
					return err
				}
				if c.Rank() == 2 {
					return e.end(c, ts[2])
				}
				return collective.AllReduce(ctx, c, v, v, collective.Sum[int64])
			}, cluster.Over(ts), cluster.MayFail())
			for rank, err := range errs[:2] {
				if !errors.Is(err, e.want) {
					t.Errorf("%s %d: rank %d: %v, want %v", name, length, rank, err, e.want)
				}
			}
		}
	}
}

// A call after Revoke fails, even if all ranks make it.
func TestRevokedInMemory(t *testing.T) {
	t.Parallel()
	for _, length := range []int{5, 50_000} {
		cause := errors.New("enough")
		errs := cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
			if c.Rank() == 1 {
				c.Revoke(cause)
			}
			v := make([]int64, length)
			return collective.AllReduce(ctx, c, v, v, collective.Sum[int64])
		}, cluster.Over(sharing(t, 2)), cluster.MayFail())
		for rank, err := range errs {
			if !errors.Is(err, collective.ErrRevoked) {
				t.Errorf("%d elements, rank %d: %v", length, rank, err)
			}
		}
	}
}

// A call in shared memory ends with its context, at all ranks.
func TestCancelInMemory(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	errs := cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		switch c.Rank() {
		case 0:
			defer close(ended)
			time.AfterFunc(time.Millisecond, cancel)
		case 1:
			select {
			case <-ended:
			case <-time.After(hang):
				t.Error("the call goes on")
				c.Revoke(errors.New("enough"))
			}
			return nil
		}
		v := make([]int64, 10)
		return collective.AllReduce(ctx, c, v, v, collective.Sum[int64])
	}, cluster.Over(sharing(t, 3)), cluster.MayFail())
	if !errors.Is(errs[0], context.Canceled) || !errors.Is(errs[2], collective.ErrRevoked) {
		t.Errorf("%v", errs)
	}
}

// Close waits for a call in shared memory, also for an untracked one: the call uses memory
// that Close gives back.
func TestCloseInMemory(t *testing.T) {
	t.Parallel()
	ts := sharing(t, 2)
	var early atomic.Bool
	errs := cluster.Run(t, len(ts), func(ctx context.Context, c *collective.Comm) error {
		v := make([]int64, 1)
		return collective.AllReduce(ctx, c, v, v, collective.NewOp("close", true, func(dst, _, _ []int64) {
			if c.Rank() == 0 {
				early.Store(closesUnder(ctx, c, ts[0]))
			}
		}))
	}, cluster.Over(ts), cluster.MayFail())
	if err := errors.Join(errs...); err != nil || early.Load() {
		t.Errorf("error %v; Close returned during the call: %v", err, early.Load())
	}
}

// closesUnder closes the communicator of rank 0 and reports whether Close returns while the
// caller continues. A wait of Close cannot be observed directly, so Close gets enough
// chances to return.
func closesUnder(ctx context.Context, c *collective.Comm, t transport.Transport) bool {
	var closed atomic.Bool
	go func() {
		_ = c.Close() // cluster.Run closes c again
		closed.Store(true)
	}()
	for t.Send(ctx, 0, transport.Envelope{Seq: 7}, nil) == nil {
		runtime.Gosched()
	}
	for range 10_000 {
		if closed.Load() {
			return true
		}
		runtime.Gosched()
	}
	return false
}

// A short call in shared memory is untracked until it waits for long. Its stall is reported like
// any other stall, also after many calls without a stall.
func TestStallInMemory(t *testing.T) {
	t.Parallel()
	stalled := make(chan collective.Stall, 2)
	o := collective.Options{OnStall: func(s collective.Stall) { stalled <- s }}
	errs := cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
		v := make([]int64, 10)
		for range 1000 {
			if err := collective.AllReduce(ctx, c, v, v, collective.Min[int64]); err != nil {
				return err
			}
		}
		if c.Rank() == 1 {
			s := <-stalled
			if s.Call.Kind != transport.KindAllReduce || len(s.Culprits) != 1 || s.Culprits[0] != 1 || s.Phase != collective.PhaseAbsent {
				t.Errorf("%v", s)
			}
		}
		return collective.AllReduce(ctx, c, v, v, collective.Min[int64])
	}, cluster.Over(sharing(t, 2)), cluster.WithOptions(o), cluster.MayFail())
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func BenchmarkAllReduceInMemory(b *testing.B) {
	for _, n := range []int{1, 256, 16 << 10} {
		b.Run(fmt.Sprintf("%dB", 4*n), func(b *testing.B) {
			all, err := mem.NewShared(2)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			cluster.Run(b, 2, func(_ context.Context, c *collective.Comm) error {
				v := make([]float32, n)
				ctx := context.Background()
				for range b.N {
					if err := collective.AllReduce(ctx, c, v, v, collective.Sum[float32]); err != nil {
						return err
					}
				}
				return nil
			}, cluster.Over(all))
		})
	}
}
