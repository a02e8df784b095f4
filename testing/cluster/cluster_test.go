package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/transport/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sum adds up the numbers of all ranks, and checks the result.
func sum(ctx context.Context, c *collective.Comm) error {
	n := int64(c.Size())
	v := []int64{int64(c.Rank())}
	if err := collective.AllReduce(ctx, c, v, v, collective.Sum[int64]); err != nil {
		return err
	}
	if v[0] != n*(n-1)/2 {
		return fmt.Errorf("sum of %d ranks is %d", n, v[0])
	}
	return nil
}

func TestRun(t *testing.T) {
	for n := 1; n <= 4; n++ {
		var ran atomic.Int64 // has one bit for each rank
		cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error {
			ran.Or(1 << c.Rank())
			return sum(ctx, c)
		})
		if ran.Load() != 1<<n-1 {
			t.Errorf("n=%d: ranks %b ran", n, ran.Load())
		}
	}
}

func TestOverP2P(t *testing.T) { cluster.Run(t, 3, sum, cluster.OverP2P()) }

func TestInProcesses(t *testing.T) {
	t.Run("of a subtest", func(t *testing.T) {
		cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
			// If the ranks were one process, all would send the same ID.
			pids := make([]int64, c.Size())
			if err := collective.AllGather(ctx, c, pids, []int64{int64(os.Getpid())}); err != nil {
				return err
			}
			slices.Sort(pids)
			if n := len(slices.Compact(pids)); n != c.Size() {
				return fmt.Errorf("%d processes for %d ranks", n, c.Size())
			}
			return sum(ctx, c)
		}, cluster.InProcesses())
	})
}

// recorder is a testing.TB that records the message of Fatal or Fatalf.
type recorder struct {
	testing.TB
	message string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) {
	r.message = fmt.Sprint(args...)
	runtime.Goexit()
}

func TestInProcessesFails(t *testing.T) {
	r := &recorder{TB: t}
	var all sync.WaitGroup
	all.Go(func() {
		cluster.Run(r, 2, func(ctx context.Context, c *collective.Comm) error {
			if c.Rank() == 1 {
				return errors.New("rank 1 has had enough")
			}
			return collective.Barrier(ctx, c)
		}, cluster.InProcesses())
	})
	all.Wait()
	if !strings.Contains(r.message, "rank 1 has had enough") || !strings.Contains(r.message, "rank 1") {
		t.Errorf("the failure says %q", r.message)
	}
}

// An error at one rank ends the other ranks. Every error says at which rank it occurred.
func TestMayFail(t *testing.T) {
	errMine := errors.New("mine")
	errs := cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
		if c.Rank() == 1 {
			return errMine
		}
		return collective.Barrier(ctx, c)
	}, cluster.MayFail())
	for rank, err := range errs {
		if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("rank %d: ", rank)) ||
			errors.Is(err, errMine) != (rank == 1) || errors.Is(err, collective.ErrRevoked) != (rank != 1) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// If the function ends its goroutine at one rank, as t.FailNow does, the other ranks get
// ErrRevoked.
func TestFunctionDoesNotReturn(t *testing.T) {
	errs := cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
		if c.Rank() == 2 {
			runtime.Goexit()
		}
		return collective.Barrier(ctx, c)
	}, cluster.MayFail())
	for rank, err := range errs[:2] {
		if !errors.Is(err, collective.ErrRevoked) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// mistaken calls Run with options that are not valid, and returns the message with which the test
// fails.
func mistaken(t *testing.T, n int, options ...cluster.Option) string {
	r := &recorder{TB: t}
	var all sync.WaitGroup
	all.Go(func() { cluster.Run(r, n, sum, options...) })
	all.Wait()
	return r.message
}

func TestOptionsThatDoNotFit(t *testing.T) {
	ts := mem.New(2)
	defer func() {
		for _, e := range ts {
			_ = e.Close()
		}
	}()
	for want, got := range map[string]string{
		"3 ranks over 2 transports":                    mistaken(t, 3, cluster.Over(ts)),
		"in one place, not in OverP2P and InProcesses": mistaken(t, 2, cluster.OverP2P(), cluster.InProcesses()),
		"MayFail does not go with InProcesses":         mistaken(t, 2, cluster.MayFail(), cluster.InProcesses()),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the failure says %q, want %q in it", got, want)
		}
	}
}

// closing counts how often its transport is closed.
type closing struct {
	*mem.Transport
	closed *atomic.Int64
}

func (c closing) Close() error {
	c.closed.Add(1)
	return c.Transport.Close()
}

func TestOver(t *testing.T) {
	var ts []closing
	var closed atomic.Int64
	for _, e := range mem.New(3) {
		ts = append(ts, closing{e, &closed})
	}
	errs := cluster.Run(t, 3, sum, cluster.Over(ts))
	if len(errs) != 3 || errors.Join(errs...) != nil || closed.Load() != 3 {
		t.Errorf("got %v, want three times nil; %d transports were closed", errs, closed.Load())
	}
}

func TestWithOptions(t *testing.T) {
	var begun atomic.Int64
	cluster.Run(t, 3, sum, cluster.WithOptions(collective.Options{OnBegin: func() { begun.Add(1) }}))
	if begun.Load() != 3 {
		t.Errorf("%d calls have begun, want 3", begun.Load())
	}
}

// A rank that returns after one call too few is named by the ranks that wait for it.
func TestRankReturnsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := cluster.Run(t, 4, func(ctx context.Context, c *collective.Comm) error {
			v := make([]float32, 1000)
			if c.Rank() != 1 {
				if err := collective.AllReduce(ctx, c, v, v, collective.Sum[float32]); err != nil {
					return err
				}
			}
			return collective.AllReduce(ctx, c, v, v, collective.Sum[float32])
		}, cluster.MayFail())
		for rank, err := range errs {
			var abort *collective.AbortError
			if named := errors.As(err, &abort) && abort.Rank == 1; named == (rank == 1) {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	})
}
