package collective_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/transport/mem"
)

// BenchmarkOutstanding measures the time of 1,000 calls, in sequence and all outstanding at
// once.
func BenchmarkOutstanding(b *testing.B) {
	for _, where := range []string{"shm", "mem"} {
		for _, ranks := range []int{2, 3} {
			for _, n := range []int{1, 16 << 10} {
				for _, form := range []string{"blocking", "outstanding"} {
					b.Run(fmt.Sprintf("%s/ranks=%d/bytes=%d/%s", where, ranks, 4*n, form), func(b *testing.B) {
						outstanding(b, where, ranks, n, form == "blocking")
					})
				}
			}
		}
	}
}

func outstanding(b *testing.B, where string, ranks, n int, blocking bool) {
	all := mem.New(ranks)
	if where == "shm" {
		var err error
		if all, err = mem.NewShared(ranks); err != nil {
			b.Fatal(err)
		}
	}
	cluster.Run(b, len(all), func(ctx context.Context, c *collective.Comm) error {
		const calls = 1000
		v := make([][]float32, calls)
		for i := range v {
			v[i] = make([]float32, n)
		}
		for range b.N {
			var handles []*collective.Handle
			for i := range calls {
				if blocking {
					if err := collective.AllReduce(ctx, c, v[i], v[i], collective.Sum[float32]); err != nil {
						return err
					}
					continue
				}
				handles = append(handles, collective.IAllReduce(ctx, c, v[i], v[i], collective.Sum[float32]))
			}
			for _, h := range handles {
				if err := h.Wait(ctx); err != nil {
					return err
				}
			}
		}
		return nil
	}, cluster.Over(all))
}
