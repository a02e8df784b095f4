package collective_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
)

// No rank returns from a collective call before all ranks have entered the call, even if the rank
// needs no data of the last rank that enters: with empty vectors, parts and chunks.
func TestNoneReturnsEarly(t *testing.T) {
	for n := 2; n <= 5; n++ {
		sum := typed[int32]{integers[int32]()}.prepare("sum", n, n*(n+1))
		for _, w := range append(ways(reducing(), false), ways(carrying(), false)...) {
			if isPoint(w.kind) {
				continue
			}
			for late := range n {
				synctest.Test(t, func(t *testing.T) { noneReturnsEarly(t, n, late, w, sum) })
			}
		}
	}
}

func noneReturnsEarly(t *testing.T, n, late int, w way, sum runner) {
	var entered [20]atomic.Bool // by length
	cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error {
		for length := range n + 1 {
			if c.Rank() == late {
				synctest.Wait() // until all other ranks are blocked
				entered[length].Store(true)
			}
			k := call{kind: w.kind, algorithm: w.algorithm, length: length, root: late}
			if length%2 == 1 {
				k.root = (late + 1) % n
			}
			if err := sum.run(ctx, c, k); err != nil {
				return err
			}
			if !entered[length].Load() {
				return fmt.Errorf("%+v of %d ranks: rank %d returned before rank %d began", k, n, c.Rank(), late)
			}
		}
		return nil
	})
}
