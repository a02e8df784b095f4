package trainer_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/loadbal"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/optim"
)

// manyMicrobatches is a job whose steps have 64 small microbatches; the last step of each pass of 5 steps has
// 32.
func manyMicrobatches(steps int64, exactly bool) trainer.Config {
	return trainer.Config{Samples: 288 * 4, GlobalBatch: 256, Microbatch: 4, Steps: steps, Seed: 4, Gradients: trainer.Gradients{Exact: exactly},
		Optimizer: optim.SGD{Momentum: 0.5}, Schedule: optim.Constant(0.25)}
}

// slowed plays a job in which rank r takes millis[r] milliseconds for a microbatch. It checks the invariants of arena.check.
func slowed(t *testing.T, cfg trainer.Config, millis ...int) (a *arena, sha string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a = newArena(len(millis), cfg)
		a.adjust = func(x *actor) { x.model.pace = time.Duration(millis[x.self.Index]) * time.Millisecond }
		a.play(t)
		sha = a.check(t, fmt.Sprint("paces ", millis))
	})
	return a, sha
}

// sharesOf returns the number of microbatches that each member computed in a step, in the order of a.actors.
func (a *arena) sharesOf(step int64) []int {
	out := make([]int, len(a.actors))
	for i, x := range a.actors {
		for _, s := range x.steps {
			for _, r := range s.Microbatches {
				if s.Step == step {
					out[i] += r[1] - r[0]
				}
			}
		}
	}
	return out
}

// slowest is the longest computing time of a member in a step.
func (a *arena) slowest(step int64) time.Duration {
	most := time.Duration(0)
	for _, x := range a.actors {
		for _, s := range x.steps {
			if s.Step == step {
				most = max(most, s.Compute)
			}
		}
	}
	return most
}

// changes lists the changes of shares in the event log.
func (a *arena) changes() []event.Shares {
	var out []event.Shares
	for _, e := range a.events.events {
		if s, ok := e.Body.(event.Shares); ok {
			out = append(out, s)
		}
	}
	return out
}

// Very unequal shares still add up to the gradient of a single process.
func TestUnequalSharesAreUnbiased(t *testing.T) {
	for _, most := range []int{1, 3, 20} {
		var params [][]float32
		for _, n := range []int{1, 3} {
			cfg := manyMicrobatches(1, false)
			cfg.Optimizer, cfg.Schedule = optim.SGD{}, optim.Constant(1)
			synctest.Test(t, func(t *testing.T) {
				a := newArena(n, cfg)
				a.adjust = func(x *actor) {
					if x.self.Index == 1 {
						x.cfg.Balancing.MaxShare = most
					}
				}
				a.play(t)
				a.check(t, "one step")
				if got := a.sharesOf(1); n == 3 && got[1] != most {
					t.Fatalf("shares %v, want %d of rank 1", got, most)
				}
				var flat []float32
				for _, p := range a.actors[0].model.params {
					flat = append(flat, p.Data...)
				}
				params = append(params, flat)
			})
		}
		for i, want := range params[0] {
			if got := params[1][i]; math.Abs(float64(got-want)) > 1e-6*max(1, math.Abs(float64(want))) {
				t.Errorf("bound %d: element %d of the gradient is %v, of one process %v", most, i, got, want)
			}
		}
	}
}

// In exact mode neither the policy nor the speeds affect the result.
func TestBalancingDoesNotShowInTheResult(t *testing.T) {
	cfg := manyMicrobatches(9, true)
	_, want := slowed(t, cfg, 1)
	for _, policy := range append(loadbal.Names(), "") {
		cfg.Balancing.Policy = policy
		a, sha := slowed(t, cfg, 1, 4)
		if sha != want {
			t.Errorf("%q, shares %v: weights %s, want %s", policy, a.sharesOf(8), sha, want)
		}
		if shares := a.sharesOf(8); policy != "equal" && policy != "lbbsp-gpu" && shares[0] < 3*shares[1] {
			t.Errorf("%q: shares %v for speeds 4 and 1", policy, shares)
		}
	}
}

// Peers of equal speed keep equal shares: the only logged shares are those of the start.
func TestEqualPeersKeepEqualShares(t *testing.T) {
	a, _ := slowed(t, manyMicrobatches(40, false), 2, 2, 2, 2)
	if changes := a.changes(); len(changes) != 1 || changes[0].Reason != "start" || len(changes[0].Old) != 0 {
		t.Errorf("shares changed: %+v", changes)
	}
}

// Soon after a member becomes slow, and soon after it recovers, step times approach the best time that is possible with whole
// microbatches.
func TestSharesFollowSpeeds(t *testing.T) {
	cfg := manyMicrobatches(60, false)
	cfg.Samples = 256 * 100 // no short steps
	synctest.Test(t, func(t *testing.T) {
		a := newArena(4, cfg)
		a.adjust = func(x *actor) {
			if x.self.Index != 3 {
				return
			}
			x.cfg.Hooks.OnBegin = func(step int64) {
				x.model.pace = time.Millisecond
				if step > 20 && step <= 40 {
					x.model.pace = 4 * time.Millisecond
				}
			}
		}
		a.play(t)
		a.check(t, "a step change")
		for step := int64(1); step <= 60; step++ {
			best := 16 * time.Millisecond
			if step > 20 && step <= 40 {
				best = 20 * time.Millisecond // with the shares 20 20 19 5
			}
			settled := step <= 20 || step > 25 && step <= 40 || step > 50
			if got := a.slowest(step); settled && got > best+time.Millisecond {
				t.Errorf("step %d takes %v with the shares %v, want %v", step, got, a.sharesOf(step), best)
			}
		}
		for _, c := range a.changes() {
			if len(c.Reason) == 0 || slices.Equal(c.Old, c.New) || len(c.New) != 4 {
				t.Errorf("event %+v", c)
			}
		}
	})
}

// Each logged change of shares starts from the previously logged shares. The log does not contain the short step at the end of a
// pass.
func TestReasonsFitTheShares(t *testing.T) {
	for slow := int64(2); slow <= 12; slow++ {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(3, manyMicrobatches(14, false))
			a.adjust = func(x *actor) {
				x.cfg.Hooks.OnBegin = func(step int64) {
					x.model.pace = time.Millisecond
					if step >= slow {
						x.model.pace *= time.Duration(1 + x.self.Index)
					}
				}
			}
			a.play(t)
			a.check(t, "a step change")
			changes := a.changes()
			if len(changes) < 2 || changes[0].Reason != "start" {
				t.Fatalf("events %+v", changes)
			}
			for i, c := range changes[1:] {
				var rank, from, to int
				if _, err := fmt.Sscanf(c.Reason, "rank %d: %d to %d microbatches,", &rank, &from, &to); err != nil {
					t.Fatalf("slow from step %d: reason %q", slow, c.Reason)
				}
				if from != c.Old[rank] || to != c.New[rank] || !slices.Equal(c.Old, changes[i].New) {
					t.Errorf("slow from step %d: %+v after %+v", slow, c, changes[i])
				}
				if short := strings.Contains(c.Reason, "short step"); slow == 5 && i == 0 && !short {
					t.Errorf("shares after the short step changed for %q", c.Reason)
				}
			}
		})
	}
}

// A newcomer begins with a share that suits the speed that it measured in its trial. The other members keep their measured speeds.
func TestAJoinerBeginsWithWhatItHasTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := manyMicrobatches(60, true)
		cfg.Samples = 256 * 100 // no short steps
		a := newArena(3, cfg)
		var begun atomic.Bool
		a.adjust = func(x *actor) {
			x.model.pace = 2 * time.Millisecond
			if x.self.Index == 2 {
				x.model.pace = 8 * time.Millisecond
			}
			x.cfg.Hooks.OnBegin = func(step int64) {
				if step == 6 && begun.CompareAndSwap(false, true) {
					a.start(elastic.Member{ID: "newcomer", Index: 3}, nil)
				}
			}
		}
		a.play(t)
		a.check(t, "a join")
		x := a.actors[3]
		if len(x.steps) == 0 {
			t.Fatal("the newcomer has computed nothing")
		}
		if got := a.sharesOf(x.steps[0].Step); got[2] > 7 || got[3] < 18 || got[3] > 21 {
			t.Errorf("shares %v in the newcomer's first step", got)
		}
		last := a.changes()[1:]
		if !slices.ContainsFunc(last, func(c event.Shares) bool { return len(c.Old) == 3 && len(c.New) == 4 }) {
			t.Errorf("no event has the shares with the newcomer: %+v", last)
		}
	})
}

// A peer whose model runs out of memory lowers its share to the microbatches that fit. All peers agree on the new bound.
func TestOutOfMemoryLowersTheShare(t *testing.T) {
	for _, exactly := range []bool{false, true} {
		cfg := manyMicrobatches(8, exactly)
		_, want := slowed(t, cfg, 1)
		synctest.Test(t, func(t *testing.T) {
			a := newArena(3, cfg)
			var told atomic.Value
			a.adjust = func(x *actor) {
				if x.self.Index == 1 {
					x.model.capacity = 7
					x.cfg.Hooks.Log = func(line string) { told.Store(line) }
				}
				x.cfg.Hooks.OnBegin = func(int64) { x.model.computed = 0 }
			}
			a.play(t)
			for _, x := range a.actors {
				if x.err != nil || x.result == nil || exactly && x.result.SHA256 != want {
					t.Errorf("%s: error %v, result %v, want %s", x.self.ID, x.err, x.result, want)
				}
			}
			a.ledger(t, "out of memory")
			if s := a.actors[0].steps; len(s) != 8 || s[7].Loss > 10 {
				t.Errorf("exact %t: a partial result had an effect: %+v", exactly, s)
			}
			for step := int64(1); step <= 8; step++ {
				if got := a.sharesOf(step)[1]; got < 1 || got > 7 {
					t.Errorf("exact %t: step %d: a share of %d with memory for 7", exactly, step, got)
				}
			}
			if line, _ := told.Load().(string); !strings.Contains(line, "at most 5 microbatches") {
				t.Errorf("the log has %q", line)
			}
		})
	}
}

// A peer that cannot compute even one microbatch ends, and the others finish without it.
func TestNoMemoryAtAll(t *testing.T) {
	cfg := manyMicrobatches(4, true)
	_, want := slowed(t, cfg, 1)
	synctest.Test(t, func(t *testing.T) {
		a := newArena(3, cfg)
		a.adjust = func(x *actor) {
			if x.self.Index == 1 {
				x.model.capacity = -1
			}
		}
		a.play(t)
		x := a.actors[1]
		if !errors.Is(x.err, trainer.ErrOutOfMemory) || x.result != nil {
			t.Errorf("error %v, result %v", x.err, x.result)
		}
		x.killed.Store(true) // the peer has no result
		if sha := a.check(t, "no memory"); sha != want {
			t.Errorf("weights %s, want %s", sha, want)
		}
	})
}

// Step reports have the gradient norm of the peer and the noise scale. Sums in integers give the same norm up to quantisation.
func TestNormsAreReported(t *testing.T) {
	plain, _ := slowed(t, manyMicrobatches(6, false), 1, 3)
	exactly, _ := slowed(t, manyMicrobatches(6, true), 1, 3)
	for i, x := range plain.actors {
		for k, s := range x.steps {
			e := exactly.actors[i].steps[k]
			if !(s.GradNorm > 0) || math.Abs(s.GradNorm-e.GradNorm) > 1e-3*s.GradNorm {
				t.Errorf("rank %d, step %d: norm %v, in exact mode %v", i, s.Step, s.GradNorm, e.GradNorm)
			}
			if other := plain.actors[0].steps[k]; s.NoiseScale != other.NoiseScale {
				t.Errorf("step %d: noise scale %v at rank %d, %v at rank 0", s.Step, s.NoiseScale, i, other.NoiseScale)
			}
		}
	}
	if last := plain.actors[0].steps[5]; !(last.NoiseScale > 0) {
		t.Errorf("noise scale %v", last.NoiseScale)
	}
	alone, _ := slowed(t, manyMicrobatches(6, false), 1)
	if s := alone.actors[0].steps[5]; !(s.NoiseScale > 0) || !(s.GradNorm > 0) {
		t.Errorf("a single peer reports the noise scale %v and the norm %v", s.NoiseScale, s.GradNorm)
	}
}
