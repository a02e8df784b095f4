package collective_test

import (
	"context"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
)

// All ranks get the same costs, even if some of them share memory; ranks that start with equal
// costs, other than the default, keep these costs.
func TestCalibrate(t *testing.T) {
	for _, perHost := range [][]int{{1, 1}, {1, 1, 1}, {2, 1}, {2, 1, 2}} {
		first := calibrated(t, perHost, collective.Options{})
		if first.Alpha <= 0 || first.Beta <= 0 || first == collective.DefaultCost() {
			t.Errorf("hosts of %v ranks: %+v", perHost, first)
		}
		if again := calibrated(t, perHost, collective.Options{Cost: first}); again != first {
			t.Errorf("hosts of %v ranks: %+v became %+v", perHost, first, again)
		}
	}
}

// Ranks that all share memory need no costs.
func TestCalibrateInMemory(t *testing.T) {
	if got := calibrated(t, []int{3}, collective.Options{}); got != collective.DefaultCost() {
		t.Errorf("got %+v", got)
	}
}

// calibrated returns the costs that all ranks have measured.
func calibrated(t *testing.T, perHost []int, o collective.Options) collective.Cost {
	t.Helper()
	ts := sharing(t, perHost...)
	costs := make([]collective.Cost, len(ts))
	cluster.Run(t, len(ts), func(ctx context.Context, c *collective.Comm) error {
		err := c.Calibrate(ctx)
		costs[c.Rank()] = c.Cost()
		return err
	}, cluster.Over(ts), cluster.WithOptions(o))
	for rank, c := range costs {
		if c != costs[0] {
			t.Errorf("hosts of %v ranks: rank %d has %+v, rank 0 %+v", perHost, rank, c, costs[0])
		}
	}
	return costs[0]
}
