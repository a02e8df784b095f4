package trainer_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer"
)

// pausing is a model that pauses.
type pausing struct {
	*counter
	pause func()
	given []bool // for each call of PauseBy, whether there was a function
}

func (m *pausing) PauseBy(pause func()) {
	m.pause, m.given = pause, append(m.given, pause != nil)
}

// A model can pause while Run runs, on one processor and on several, and no longer.
func TestPausing(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, processors := range []int{1, 2} {
		runtime.GOMAXPROCS(processors)
		runGroups(t, 2, &log{}, func(ctx context.Context, g *elastic.Group) error {
			m := &pausing{counter: newCounter(3)}
			m.hook = func([][]float32, []int) error {
				m.pause()
				return nil
			}
			if err := trainer.Run(ctx, g, m, counting(2)); err != nil {
				return err
			}
			if len(m.given) != 2 || !m.given[0] || m.given[1] {
				t.Errorf("PauseBy was called with %v", m.given)
			}
			return nil
		})
	}
}
