package collective_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
)

// A rank that continues a call that has failed at the other ranks does not write to their memory:
// their dst was removed from the shared memory, and new allocations are elsewhere.
func TestLateInMemory(t *testing.T) {
	t.Parallel()
	const ranks, length = 3, 10_000
	began, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	var failed atomic.Int32
	errs := cluster.Run(t, ranks, func(ctx context.Context, c *collective.Comm) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		dst, src, err := allocated(c, length, true)
		if err != nil {
			return err
		}
		late := c.Rank() == 2
		wait := sync.OnceFunc(func() {
			close(began)
			<-goOn
		})
		if !late {
			wait = func() {}
			go func() {
				<-began
				cancel()
			}()
		}
		err = collective.AllReduce(ctx, c, dst, src, waiting(wait))
		if late {
			close(done)
			return errors.Join(collective.Free(c, dst), collective.Free(c, src))
		}
		defer release()
		if !errors.Is(err, context.Canceled) && !errors.Is(err, collective.ErrRevoked) {
			return fmt.Errorf("a call that was cancelled: %w", err)
		}
		if collective.IsShared(c, dst) || !collective.IsShared(c, src) {
			return fmt.Errorf("dst is shared: %t, src: %t", collective.IsShared(c, dst), collective.IsShared(c, src))
		}
		again, err := collective.Alloc[int64](c, length)
		if err != nil {
			return err
		}
		mark(dst)
		mark(again)
		if failed.Add(1) == ranks-1 {
			release()
		}
		<-done
		err = errors.Join(untouched("dst", dst), untouched("what was taken since", again),
			collective.Free(c, dst), collective.Free(c, src), collective.Free(c, again))
		if err == nil && collective.Free(c, dst) == nil {
			return errors.New("dst was not given back the first time")
		}
		return err
	}, cluster.Over(sharing(t, ranks)), cluster.MayFail())
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// mark fills v with -1, which is no sum of the test.
func mark(v []int64) {
	for i := range v {
		v[i] = -1
	}
}

// untouched returns an error if v, called name, was written to since mark.
func untouched(name string, v []int64) error {
	if i := slices.IndexFunc(v, func(x int64) bool { return x != -1 }); i >= 0 {
		return fmt.Errorf("element %d of %s was written to", i, name)
	}
	return nil
}

// waiting returns an operation that calls wait before its first reduction.
func waiting(wait func()) collective.Op[int64] {
	return collective.NewOp("late", true, func(dst, a, b []int64) {
		wait()
		for i := range dst {
			dst[i] = a[i] + b[i] + 1
		}
	})
}
