package trainer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/transport/mem"
)

// If a reduction fails, the next session moves its result vector into shared memory again, with its content. Vectors that are still
// in shared memory stay where they are.
func TestSharedBuffersAfterFailure(t *testing.T) {
	ts, err := mem.NewShared(2)
	if err != nil {
		t.Fatal(err)
	}
	began, ended := make(chan struct{}), make(chan struct{})
	errs := cluster.Run(t, len(ts), func(ctx context.Context, c *collective.Comm) error {
		h := trainer.NewSharingReducer(10_000)
		h.Migrate(c)
		src, dst := h.Vectors()
		if !collective.IsShared(c, src) || !collective.IsShared(c, dst) {
			return errors.New("gradients are not in shared memory")
		}
		wait := sync.OnceFunc(func() {
			close(began)
			<-ended
		})
		op := collective.NewOp("wait", true, func(dst, a, _ []float32) {
			if c.Rank() == 1 {
				wait()
			}
			copy(dst, a)
		})
		if c.Rank() == 1 {
			_ = collective.AllReduce(ctx, c, dst, src, op) // the call may fail, or succeed if the cancellation comes too late
			return h.Leave()
		}
		calling, cancel := context.WithCancel(ctx)
		go func() {
			<-began
			cancel()
		}()
		err := collective.AllReduce(calling, c, dst, src, op)
		close(ended)
		if !errors.Is(err, context.Canceled) || collective.IsShared(c, dst) {
			return fmt.Errorf("%w; dst is where others may write: %t", err, collective.IsShared(c, dst))
		}
		return errors.Join(movesAgain(c, h), h.Leave())
	}, cluster.Over(ts), cluster.MayFail())
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// movesAgain checks that the vector for the sums moves, and the gradients of the rank do not.
func movesAgain(c *collective.Comm, h *trainer.SharingReducer) error {
	src, dst := h.Vectors()
	src[7], dst[7] = 4, 3
	h.Migrate(c)
	own, staging := h.Vectors()
	if &own[0] != &src[0] || !collective.IsShared(c, own) || own[7] != 4 {
		return fmt.Errorf("own gradients have moved: %t; are shared: %t; have %v, want 4", &own[0] != &src[0], collective.IsShared(c, own), own[7])
	}
	if !collective.IsShared(c, staging) || staging[7] != 3 {
		return fmt.Errorf("the target of the reduction is shared: %t; has %v, want 3", collective.IsShared(c, staging), staging[7])
	}
	return nil
}
