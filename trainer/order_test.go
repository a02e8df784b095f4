package trainer_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/exact"
)

// In exact mode the peaks of all gradients are exchanged, in whatever order gradients become complete. Otherwise a sum could
// overflow unnoticed.
func TestPeaksInAnyOrder(t *testing.T) {
	for _, order := range [][]int{{2, 1, 0}, {2, 0, 1}, {0, 1, 2}, {1, 0, 2}} {
		cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
			got, err := trainer.ReduceInOrder(ctx, c, order...)
			if err == nil && !slices.Equal(got, []exact.Peak{1, 2, 3}) {
				err = fmt.Errorf("order %v: peaks %v", order, got)
			}
			return err
		})
	}
}
