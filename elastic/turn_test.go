package elastic_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/testing/simnet"
)

// A member that was asked to leave takes part in one more turn, in which all members know its rank, if
// the turns ask for it; also if they ask only at first. The epoch and the view tell the turns before the
// leave from those after it.
func TestTurnLeaving(t *testing.T) {
	const leaver, asked = 1, 5
	for name, last := range map[string]int64{"in each turn": 100, "in the first turns": 3, "until the leave": asked} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			told := make(map[int64]int)   // by step, the members that were told that the leaver leaves
			steps := make(map[int]int64)  // by index, the last step
			sizes := make(map[uint64]int) // by epoch
			network := simnet.New(simnet.Config{Seed: 1, Link: simnet.Link{Delay: time.Millisecond}})
			cluster.Start(t, 3, network, func(ctx context.Context, g *elastic.Group) error {
				step, sum, index := int64(0), []int64{0}, g.Self().Index
				for t := range g.Steps(ctx, elastic.Vectors(&step, sum), 20) {
					if index == leaver && step == asked {
						g.Leave()
					}
					var leaving []int
					if step < last {
						leaving = t.Leaving()
					}
					one := []int64{1}
					if collective.AllReduce(ctx, t.Comm, one, one, collective.Sum[int64]) != nil {
						continue
					}
					sum[0] += one[0]
					step++
					mu.Lock()
					if slices.Equal(leaving, []int{leaver}) {
						told[step]++
					} else if len(leaving) > 0 {
						t.Fail(fmt.Errorf("step %d: ranks %v leave", step, leaving))
					}
					steps[index] = step
					sizes[t.Epoch()] = len(t.View().Members)
					mu.Unlock()
				}
				if err := g.Err(); index != leaver || !errors.Is(err, elastic.ErrLeft) {
					return err
				}
				return nil
			}).Wait()
			if last == 100 && told[asked+2] != 3 || last < asked && len(told) > 0 {
				t.Errorf("%s: told by step: %v", name, told)
			}
			if steps[leaver] < asked || steps[leaver] > asked+6 || steps[0] != 20 || sizes[1] != 3 || sizes[2] != 2 {
				t.Errorf("%s: last steps %v, members by epoch %v", name, steps, sizes)
			}
		})
	}
}
