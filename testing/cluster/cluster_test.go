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

	"go.uber.org/goleak"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sum adds the ranks of all.
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
		var ran atomic.Int64 // one bit per rank
		cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error {
			ran.Or(1 << c.Rank())
			return sum(ctx, c)
		})
		if ran.Load() != 1<<n-1 {
			t.Errorf("n=%d: ranks %b ran", n, ran.Load())
		}
	}
}

func TestRunP2P(t *testing.T) { cluster.RunP2P(t, 3, sum) }

func TestRunProcesses(t *testing.T) {
	t.Run("of a subtest", func(t *testing.T) {
		cluster.RunProcesses(t, 3, func(ctx context.Context, c *collective.Comm) error {
			// Were the ranks one process, they would all send the same.
			pids := make([]int64, c.Size())
			if err := collective.AllGather(ctx, c, pids, []int64{int64(os.Getpid())}); err != nil {
				return err
			}
			slices.Sort(pids)
			if n := len(slices.Compact(pids)); n != c.Size() {
				return fmt.Errorf("%d processes for %d ranks", n, c.Size())
			}
			return sum(ctx, c)
		})
	})
}

// recorder is a test that notes how it failed.
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

func TestRunProcessesFails(t *testing.T) {
	r := &recorder{TB: t}
	var all sync.WaitGroup
	all.Go(func() {
		cluster.RunProcesses(r, 2, func(ctx context.Context, c *collective.Comm) error {
			if c.Rank() == 1 {
				return errors.New("rank 1 has had enough")
			}
			return collective.Barrier(ctx, c)
		})
	})
	all.Wait()
	if !strings.Contains(r.message, "rank 1 has had enough") || !strings.Contains(r.message, "rank 1") {
		t.Errorf("the failure says %q", r.message)
	}
}

// The error of one rank ends the others, and every error says whose it is.
func TestErrors(t *testing.T) {
	errMine := errors.New("mine")
	errs := cluster.Errors(t, 3, func(ctx context.Context, c *collective.Comm) error {
		if c.Rank() == 1 {
			return errMine
		}
		return collective.Barrier(ctx, c)
	})
	for rank, err := range errs {
		if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("rank %d: ", rank)) ||
			errors.Is(err, errMine) != (rank == 1) || errors.Is(err, collective.ErrRevoked) != (rank != 1) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// A function that ends its goroutine, as t.FailNow does, does not leave the others
// waiting.
func TestFunctionDoesNotReturn(t *testing.T) {
	errs := cluster.Errors(t, 3, func(ctx context.Context, c *collective.Comm) error {
		if c.Rank() == 2 {
			runtime.Goexit()
		}
		return collective.Barrier(ctx, c)
	})
	for rank, err := range errs[:2] {
		if !errors.Is(err, collective.ErrRevoked) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

func TestRunGroups(t *testing.T) {
	for n := 1; n <= 3; n++ {
		cluster.RunGroups(t, n, nil, func(ctx context.Context, g *elastic.Group) error {
			s, err := g.Next(ctx, 0)
			if err != nil {
				return err
			}
			return sum(ctx, s.Comm)
		})
	}
}
