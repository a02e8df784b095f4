package collective_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/testing/cluster"
)

// If sending is slower than receiving, an in-place swap reduces no piece before it was
// sent.
func TestSwapWaitsForSend(t *testing.T) {
	const length = 100
	synctest.Test(t, func(t *testing.T) {
		ts := watch(messages(4), func(rank, _ int, _ transport.Envelope) error {
			if rank == 1 {
				<-time.After(time.Second)
			}
			return nil
		}, ignore)
		cluster.Run(t, len(ts), func(ctx context.Context, c *collective.Comm) error {
			v := ones(length)
			if err := collective.AllReduce(ctx, c.With(collective.CallOptions{Algorithm: collective.RecursiveDoubling}), v, v, collective.Sum[int64]); err != nil {
				return err
			}
			for i, got := range v {
				if got != 4 {
					return fmt.Errorf("element %d: %d", i, got)
				}
			}
			return nil
		}, cluster.Over(ts), cluster.WithOptions(collective.Options{Segment: 64}))
	})
}

// A reduction that panics between two pieces ends the call at its rank and at the ranks that have
// not received everything. No goroutine stays behind: synctest.Test would wait for it.
func TestPanicBetweenSegments(t *testing.T) {
	for _, n := range []int{2, 4} {
		synctest.Test(t, func(t *testing.T) {
			errs := cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) (err error) {
				folds := 0
				op := collective.NewOp("panics", true, func(dst, a, b []int64) {
					if folds++; c.Rank() == 1 && folds == 3 {
						panic("on purpose")
					}
				})
				defer func() {
					if p := recover(); p != nil {
						err = fmt.Errorf("%w: %v", collective.ErrRevoked, p)
					}
				}()
				v := ones(100)
				return collective.AllReduce(ctx, c.With(collective.CallOptions{Algorithm: collective.RecursiveDoubling}), v, v, op)
			}, cluster.Over(messages(n)), cluster.WithOptions(collective.Options{Segment: 64}), cluster.MayFail())
			for rank, err := range errs {
				if (err != nil || rank == 1) && !errors.Is(err, collective.ErrRevoked) {
					t.Errorf("n=%d, rank %d: %v", n, rank, err)
				}
			}
		})
	}
}
