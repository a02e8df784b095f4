package collective_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
)

// OnBegin is called for every call. OnError is called for the failed calls of the communicator from
// New, but not of a duplicate, before the callers get the error. A bug of one rank's program is
// ErrMistake for all ranks.
func TestHooks(t *testing.T) {
	var mu sync.Mutex
	begun, failed := 0, []error{}
	o := collective.Options{
		OnBegin: func() { mu.Lock(); begun++; mu.Unlock() },
		OnError: func(err error) { mu.Lock(); failed = append(failed, err); mu.Unlock() },
	}
	var ready sync.WaitGroup
	ready.Add(2)
	cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
		v := []int64{1, 2}
		if err := collective.AllReduce(ctx, c, v, v, collective.Sum[int64]); err != nil {
			return err
		}
		d, err := collective.Dup(ctx, c)
		ready.Done()
		if err != nil {
			return err
		}
		ready.Wait() // the mistake below also ends calls that the other rank has not finished
		var blocking, started error
		if c.Rank() == 0 {
			blocking = collective.AllReduce(ctx, c, v[:1], v, collective.Sum[int64])
		} else {
			blocking = collective.AllReduce(ctx, c, v, v, collective.Sum[int64])
		}
		mu.Lock()
		if !slices.Contains(failed, blocking) {
			t.Errorf("rank %d: %v came before it was told", c.Rank(), blocking)
		}
		mu.Unlock()
		started = collective.IBarrier(ctx, c).Wait(ctx)
		other := collective.Barrier(ctx, d)
		mu.Lock()
		if !slices.Contains(failed, started) || slices.Contains(failed, other) {
			t.Errorf("rank %d: %v was not told, or %v was", c.Rank(), started, other)
		}
		mu.Unlock()
		if !errors.Is(c.Err(), collective.ErrMistake) {
			t.Errorf("rank %d: %v is no mistake", c.Rank(), c.Err())
		}
		return nil
	}, cluster.WithOptions(o))
	if begun != 2*5 {
		t.Errorf("%d calls have begun, want 10", begun)
	}
}
