package trainer_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer"
)

// A model can yield while it computes, on one processor and on several.
func TestYielding(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, processors := range []int{1, 2} {
		runtime.GOMAXPROCS(processors)
		runGroups(t, 2, &log{}, func(ctx context.Context, g *elastic.Group) error {
			m := newCounter(3).Model()
			gradient, yields := m.Gradient, 0
			m.Gradient = func(b *trainer.Batch) (float64, error) {
				b.Yield()
				yields++
				return gradient(b)
			}
			if err := trainer.Run(ctx, g, m, counting(2)); err != nil {
				return err
			}
			if yields == 0 {
				t.Error("the model was never called")
			}
			return nil
		})
	}
}
