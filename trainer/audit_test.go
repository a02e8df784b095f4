package trainer_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer"
)

// crooked is a model that corrupts its gradients with spoil in the calls for which wrong returns
// true.
type crooked struct {
	*slope
	wrong func() bool
	spoil func(grad [][]float32)
}

func (c crooked) Model() trainer.Model { return trainer.ModelOf(c) }

func (c crooked) Accumulate(grad [][]float32, samples []int, done func(int)) (float64, error) {
	loss, err := c.slope.Accumulate(grad, samples, func(int) {})
	if c.wrong() {
		c.spoil(grad)
	}
	for i := len(grad) - 1; i >= 0; i-- {
		done(i)
	}
	return loss, err
}

// poison negates an element of a gradient; flip changes the element by one part in a thousand.
func poison(grad [][]float32) { grad[1][2] *= -1 }
func flip(grad [][]float32)   { grad[1][2] *= 1.001 }

// audited returns an arena whose members audit each other at the given rate. The seed determines the auditors' random numbers.
func audited(n int, steps int64, rate float64, seed uint64, adjust func(x *actor)) *arena {
	cfg := churning(steps, true)
	cfg.Gradients.Audit = rate
	a := newArena(n, cfg)
	a.adjust = func(x *actor) {
		x.model.pace = 0
		trainer.SeedAudits(&x.cfg, 1000*seed+uint64(x.self.Index)+1)
		if adjust != nil {
			adjust(x)
		}
	}
	return a
}

// found returns the audit events in the members' event logs, and the step of each event.
func (a *arena) found() (all []event.Audit, steps []int64) {
	for _, e := range a.events.events {
		if b, ok := e.Body.(event.Audit); ok {
			all, steps = append(all, b), append(steps, e.Step)
		}
	}
	return all, steps
}

// expectOut checks that the audits name the given rank, that the group puts it out, and that the others finish.
func (a *arena) expectOut(t *testing.T, rank int) {
	t.Helper()
	all, steps := a.found()
	if len(all) == 0 {
		t.Fatal("nobody is named")
	}
	id := a.first[rank].ID
	for i, b := range all {
		if !b.Out || !slices.Equal(b.Who, []string{id.Short()}) {
			t.Errorf("step %d: %+v", steps[i], b)
		}
	}
	sha := ""
	for i, x := range a.actors {
		if i == rank {
			if !errors.Is(x.err, trainer.ErrAudit) {
				t.Errorf("rank %d ends with %v", rank, x.err)
			}
			continue
		}
		if x.err != nil || x.result == nil || x.result.Peers != len(a.first)-1 || sha != "" && sha != x.result.SHA256 {
			t.Errorf("rank %d: error %v, result %+v", i, x.err, x.result)
			continue
		}
		sha = x.result.SHA256
	}
	t.Logf("rank %d is named for step %v", rank, steps[0])
}

// At a rate of 0.01 a peer that corrupts its part of each step is named within 1,000 steps.
func TestAuditNamesACheat(t *testing.T) {
	t.Parallel()
	for cheat := range 2 {
		synctest.Test(t, func(t *testing.T) {
			a := audited(3, 1000, 0.01, uint64(cheat), func(x *actor) {
				if x.self.Index == cheat {
					x.trained = crooked{x.model, func() bool { return true }, poison}
				}
			})
			a.play(t)
			a.expectOut(t, cheat)
		})
	}
}

// A peer that sometimes computes a wrong element is named as soon as a step with the error is audited. With two members the test
// makes the error only once: if a peer repeats the error, the vote of two members has no majority.
func TestAuditNamesBadMemory(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		synctest.Test(t, func(t *testing.T) {
			a := audited(n, 30, 1, 6, func(x *actor) {
				if x.self.Index != 1 {
					return
				}
				var step int64
				x.cfg.Hooks.OnBegin = func(s int64) { step = s }
				x.trained = crooked{x.model, func() bool {
					due := step == 7 || n > 2 && step > 7 && step%3 == 1
					step = 0
					return due
				}, flip}
			})
			a.play(t)
			a.expectOut(t, 1)
		})
	}
}

// A peer with wrong audits and right contributions is named. The members that it accuses are not.
func TestAuditNamesAFalseAccuser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := audited(4, 30, 0.5, 1, func(x *actor) {
			if x.self.Index != 2 {
				return
			}
			calls := 0
			x.cfg.Balancing.MaxShare = 1
			x.cfg.Hooks.OnBegin = func(int64) { calls = 0 }
			x.trained = crooked{x.model, func() bool { calls++; return calls > 1 }, flip}
		})
		a.play(t)
		a.expectOut(t, 2)
	})
}

// If two members repeat their claims, there is no majority: both are named, and the job continues.
func TestAuditOfTwoNamesBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := audited(2, 30, 0.2, 1, func(x *actor) {
			if x.self.Index == 1 {
				x.trained = crooked{x.model, func() bool { return true }, poison}
			}
		})
		a.play(t)
		a.check(t, "two that differ")
		all, _ := a.found()
		if len(all) == 0 {
			t.Fatal("nobody is named")
		}
		for _, b := range all {
			if b.Out || len(b.Who) != 2 {
				t.Errorf("%+v", b)
			}
		}
	})
}

// However often honest peers audit each other, none is named, and the weights are the same as with a single process. Kills and
// joins do not change this.
func TestAuditsOfHonestPeers(t *testing.T) {
	t.Parallel()
	cfg := churning(120, true)
	want := alone(t, cfg)
	for seed := range uint64(2) {
		for _, rate := range []float64{0.05, 1} {
			synctest.Test(t, func(t *testing.T) {
				var joined atomic.Int32
				var a *arena
				a = audited(4, cfg.Steps, rate, seed, func(x *actor) {
					x.model.pace = 10 * time.Millisecond
					age := int64(x.self.Index)
					x.cfg.Hooks.OnBegin = func(step int64) {
						if n := joined.Load(); n < 5 && step == 15*int64(n+1) && joined.CompareAndSwap(n, n+1) {
							a.start(elastic.Member{ID: elastic.ID(fmt.Sprintf("late-peer-%02d", n)), Index: 4 + int(n)}, nil)
						}
						if age < 5 && step == 20+int64(seed)+15*age {
							x.kill()
						}
					}
				})
				a.play(t)
				about := fmt.Sprintf("seed %d, rate %v", seed, rate)
				if sha := a.check(t, about); sha != want {
					t.Errorf("%s: weights %s, want %s", about, sha, want)
				}
				if all, steps := a.found(); len(all) > 0 {
					t.Errorf("%s: steps %v: %+v", about, steps, all)
				}
			})
		}
	}
}

func TestAuditNeedsExactMode(t *testing.T) {
	for _, rate := range []float64{0.5, 2, -1} {
		cfg := counting(1)
		cfg.Gradients.Audit = rate
		expectAll(t, train(t, 1, cfg, &log{}, nil), nil, "Audit")
	}
}
