package trainer_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer"
)

// sameWeights checks that all members have the weights of rank 0.
func sameWeights(t *testing.T, out []outcome) {
	t.Helper()
	for rank, o := range out {
		if o.err != nil || o.result == nil {
			t.Errorf("rank %d: error %v, result %v", rank, o.err, o.result)
			continue
		}
		for i, p := range o.model.params {
			if !slices.Equal(p.Data, out[0].model.params[i].Data) {
				t.Errorf("rank %d has %s = %v, rank 0 %v", rank, p.Name, p.Data, out[0].model.params[i].Data)
			}
		}
	}
}

// A peer that starts with other parameters than the majority gets the parameters of the majority.
func TestADifferentStartIsLevelled(t *testing.T) {
	steps := cut(train(t, 1, counting(1), &log{}, nil)[0].model.seen)
	l := &log{}
	out := train(t, 3, counting(1), l, func(rank int, m *counter, _ *trainer.Config) {
		if rank == 0 {
			m.params[2].Data[0] = 1
		}
	})
	sameWeights(t, out)
	checkWeights(t, out[0].model, replay(1, func(int) [][]int { return steps }))
	resyncs := of[event.Resync](l, 0)
	if len(resyncs) != 1 || resyncs[0].Who != "member-0" || !strings.Contains(resyncs[0].Reason, "differed from the others") {
		t.Errorf("events %+v", resyncs)
	}
	if len(of[event.Resync](l, 1)) > 0 {
		t.Errorf("rank 1 was re-synced, too")
	}
}

// If one value of a peer's parameters changes, the next digest shows it, and the peer gets the state of the others. Every step is
// committed.
func TestAPeerThatDivergesIsResynced(t *testing.T) {
	for odd := range 4 {
		out := train(t, 4, counting(2), &log{}, func(rank int, m *counter, c *trainer.Config) {
			report := c.Hooks.OnStep
			c.Hooks.OnStep = func(r trainer.StepReport) {
				report(r)
				if rank == odd && r.Step == 2 {
					m.params[0].Data[0]++
				}
			}
		})
		sameWeights(t, out)
		for rank, o := range out {
			for i, r := range o.steps {
				if len(o.steps) != 8 || r.Step != int64(i+1) || r.Digest != out[0].steps[i].Digest {
					t.Errorf("odd rank %d: rank %d reported %d steps, number %d is %+v", odd, rank, len(o.steps), i, r)
				}
			}
		}
	}
}

// A peer that diverges repeatedly leaves, and the group continues without it.
func TestAPeerThatDivergesAgainAndAgainLeaves(t *testing.T) {
	out := train(t, 4, counting(3), &log{}, func(rank int, m *counter, c *trainer.Config) {
		if rank == 1 {
			report := c.Hooks.OnStep
			c.Hooks.OnStep = func(r trainer.StepReport) {
				report(r)
				m.params[0].Data[0]++
			}
		}
	})
	expectAll(t, out[1:2], trainer.ErrDiverged, "rank 1 (member-1)", "2 times already")
	sameWeights(t, []outcome{out[0], out[2], out[3]})
	if steps := len(out[0].steps); steps != 12 || out[0].result.Peers != 3 {
		t.Errorf("%d steps with %d peers at the end", steps, out[0].result.Peers)
	}
}
