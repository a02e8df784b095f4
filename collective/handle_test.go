package collective_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
)

// Many calls are in progress at once, and each rank waits for them in another order.
func TestManyInProgress(t *testing.T) {
	const n, calls = 4, 60
	cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error {
		var handles [calls]*collective.Handle
		var results [calls][]int64
		for i := range calls {
			a := []collective.Algorithm{collective.Auto, collective.Ring, collective.Tree, collective.Rabenseifner}[i%4]
			results[i] = make([]int64, 1+i*3)
			for j := range results[i] {
				results[i][j] = int64(100*i + j + c.Rank())
			}
			handles[i] = collective.IAllReduce(ctx, c.With(collective.CallOptions{Algorithm: a}), results[i], results[i], collective.Sum[int64])
		}
		if err := collective.Barrier(ctx, c); err != nil { // begins after all these calls, and may end before them
			return err
		}
		for i := range calls {
			i = (i*7 + 13*c.Rank()) % calls
			if err := handles[i].Wait(ctx); err != nil {
				return err
			}
			for j, got := range results[i] {
				if want := int64(n*(100*i+j) + n*(n-1)/2); got != want {
					return fmt.Errorf("call %d: element %d is %d, want %d", i, j, got, want)
				}
			}
		}
		return nil
	})
}

// Wait ends with its own context, and the call continues.
func TestWaitGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
			if c.Rank() == 1 {
				synctest.Wait() // until rank 0 waits in Recv
				return errors.Join(collective.Barrier(ctx, c), collective.Send(ctx, c, 0, 0, []int8{1}))
			}
			h := collective.IBarrier(ctx, c)
			short, cancel := context.WithCancelCause(ctx)
			cancel(errTired)
			if err := h.Wait(short); !errors.Is(err, errTired) || errors.Is(err, collective.ErrRevoked) {
				return fmt.Errorf("gave up with: %w", orMissing(err))
			}
			select {
			case <-h.Done():
				return errors.New("done without rank 1")
			default:
			}
			if err := collective.Recv(ctx, c, 1, 0, make([]int8, 1)); err != nil {
				return err
			}
			<-h.Done()
			return h.Wait(short) // the error of an ended call, whatever the context
		})
	})
}

// The end of the context of a non-blocking call ends the call at all ranks.
func TestStartedCallEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
			if c.Rank() != 0 {
				return collective.Recv(ctx, c, 0, 5, []int8{})
			}
			short, cancel := context.WithCancel(ctx)
			h := collective.IBarrier(short, c)
			synctest.Wait()
			cancel()
			<-h.Done()
			return h.Wait(ctx)
		}, cluster.MayFail())
		for rank, err := range errs {
			if !errors.Is(err, collective.ErrRevoked) || (rank == 0) != errors.Is(err, context.Canceled) {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	})
}
