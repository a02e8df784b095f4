package trainer_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/optim"
)

// near reports whether two times in milliseconds differ by rounding only.
func near(a, b float64) bool { return math.Abs(a-b) < 1e-3 }

// tiled checks the times of all steps: the parts of a step add up to the whole, and steps of a peer in one epoch follow each other
// without a gap. If steps begin early, each has the computing before the end of the step before in its own time, so gaps cancel out but
// for that of the last step.
func (a *arena) tiled(t *testing.T, about string) {
	t.Helper()
	early := 0.0
	for _, x := range a.actors {
		if a.cfg.Gradients.Delay || x.trained.Model().Waits {
			for _, s := range x.steps {
				early = max(early, milliseconds(s.Compute))
			}
		}
	}
	ended := make(map[string]event.Event) // the last step of each peer
	drift := make(map[string]float64)
	for _, e := range a.events.events {
		s, ok := e.Body.(event.Step)
		if !ok || s.Began.IsZero() {
			continue
		}
		parts := []float64{s.LostMS, s.PointMS, s.DataMS, s.ComputeMS, s.WaitMS, s.ReduceMS, s.ApplyMS, s.CommitMS}
		sum := 0.0
		for _, p := range parts {
			sum += p
		}
		if !near(sum, s.StepMS) || slices.Min(parts) < 0 {
			t.Errorf("%s: step %d of %s has the parts %v, together %v ms, in %v ms", about, e.Step, e.Peer, parts, sum, s.StepMS)
		}
		if last, ok := ended[e.Peer]; ok && last.Step == e.Step-1 && last.Epoch == e.Epoch {
			b := last.Body.(event.Step)
			drift[e.Peer] += milliseconds(s.Began.Sub(b.Began)) - b.StepMS
			if gap := math.Abs(drift[e.Peer]); gap > early && !near(gap, early) {
				t.Errorf("%s: %v ms are missing between the steps %d and %d of %s", about, drift[e.Peer], last.Step, e.Step, e.Peer)
			}
		} else {
			drift[e.Peer] = 0
		}
		ended[e.Peer] = e
	}
}

// timing is the configuration of a job of three peers with three microbatches each in every step.
func timing(steps int64) trainer.Config {
	cfg := churning(steps, false)
	cfg.Samples, cfg.GlobalBatch, cfg.Balancing.Policy = 90, 45, "equal"
	return cfg
}

// stepsOf returns the times of all steps of a peer, by step.
func (a *arena) stepsOf(index int) map[int64]event.Step {
	all := make(map[int64]event.Step)
	for _, e := range a.events.events {
		if s, ok := e.Body.(event.Step); ok && e.Index == index && !s.Began.IsZero() {
			all[e.Step] = s
		}
	}
	return all
}

// pausing is a model that pauses before each call.
type pausing struct {
	*slope
	pause func(b *trainer.Batch)
}

func (p pausing) Model() trainer.Model {
	return around(p.slope.Model(), func(b *trainer.Batch, gradient func(b *trainer.Batch) (float64, error)) (float64, error) {
		p.pause(b)
		return gradient(b)
	})
}

// slowRule is an optimizer that takes a while for each parameter.
type slowRule struct {
	optim.SGD
	Pause time.Duration
}

func (s slowRule) Update(step int64, rate float64, param, grad []float32, state [][]float32) {
	if len(param) > 0 {
		<-time.After(s.Pause)
	}
	s.SGD.Update(step, rate, param, grad, state)
}

// parts are some parts of a step, in milliseconds.
type parts struct{ point, data, compute, wait, apply float64 }

// cause is a cause of long steps at the peer 1, or at all.
type cause struct {
	inject func(x *actor, pause time.Duration)
	// want returns the parts of a step at the peer 1 and at the others, for a pause in milliseconds.
	want func(pause float64, step int64) (slow, others parts)
}

// causes returns the causes by name. The members of the job compute for 3 ms in a step, and apply the update of four parameters.
func causes() map[string]cause {
	late := func(slow parts) func(float64, int64) (parts, parts) {
		return func(p float64, _ int64) (parts, parts) {
			return parts{slow.point * p, slow.data * p, 3 + slow.compute*p, 0, 0}, parts{compute: 3, wait: p}
		}
	}
	return map[string]cause{
		"nothing": {func(*actor, time.Duration) {}, func(float64, int64) (slow, others parts) { return parts{compute: 3}, parts{compute: 3} }},
		"a slow peer": {func(x *actor, pause time.Duration) {
			if x.self.Index == 1 {
				x.model.pace += pause / 3
			}
		}, late(parts{compute: 1})},
		"a slow reader": {func(x *actor, pause time.Duration) {
			if x.self.Index == 1 {
				x.trained = pausing{x.model, func(b *trainer.Batch) {
					<-time.After(pause / 3)
					b.Unforeseen(pause / 3)
				}}
			}
		}, late(parts{data: 1})},
		"a slow hook": {func(x *actor, pause time.Duration) {
			if x.self.Index == 1 {
				x.cfg.Hooks.OnBegin = func(int64) { <-time.After(pause) }
			}
		}, late(parts{point: 1})},
		"a slow update": {func(x *actor, pause time.Duration) {
			x.cfg.Optimizer = slowRule{optim.SGD{Momentum: 0.5}, pause / 4}
		}, func(p float64, _ int64) (slow, others parts) {
			return parts{compute: 3, apply: p}, parts{compute: 3, apply: p}
		}},
		"an evaluation": {evaluating, func(p float64, step int64) (slow, others parts) {
			if step%2 == 0 { // the point is before an odd step
				p = 0
			}
			return parts{compute: 3, point: p}, parts{compute: 3, point: p}
		}},
	}
}

// evaluating makes a member evaluate for a while at every second step.
func evaluating(x *actor, pause time.Duration) {
	x.train = func(ctx context.Context, g *elastic.Group, m trainer.Model) error {
		run := trainer.New(g, m, x.cfg)
		for p := range run.Points(ctx, 2) {
			<-time.After(pause)
			if _, err := p.Sum(trainer.Score{Samples: 1}); err != nil {
				p.Fail(err)
			}
		}
		return run.Err()
	}
}

// Each cause of a long step is in the part that is meant for it, at each peer.
func TestEachCauseHasItsPart(t *testing.T) {
	for name, c := range causes() {
		for seed := range uint64(10) {
			synctest.Test(t, func(t *testing.T) {
				pause := 12 * time.Millisecond * time.Duration(1+rand.New(rand.NewPCG(seed, 1)).IntN(20)) // in thirds and quarters
				about := fmt.Sprintf("%s, %v", name, pause)
				a := newArena(3, timing(7))
				a.adjust = func(x *actor) { c.inject(x, pause) }
				a.play(t)
				a.check(t, about)
				evals := of[event.Eval](&a.events, 0)
				if slices.ContainsFunc(evals, func(e event.Eval) bool { return e.MS != milliseconds(pause) || e.Samples != 3 }) || name == "an evaluation" && len(evals) != 4 {
					t.Errorf("%s: evaluations %+v", about, evals)
				}
				for index := range 3 {
					for step := int64(2); step < 7; step++ {
						one, others := c.want(milliseconds(pause), step)
						want, whom := others, elastic.ID("peer-of-rank-1").Short()
						if index == 1 {
							want, whom = one, ""
						}
						s := a.stepsOf(index)[step]
						if got := (parts{s.PointMS, s.DataMS, s.ComputeMS, s.WaitMS, s.ApplyMS}); got != want {
							t.Errorf("%s: step %d of peer %d has the parts %+v, want %+v", about, step, index, got, want)
						}
						if want.wait > 0 && s.WaitFor != whom || s.LostMS != 0 || s.LR != 0.25 {
							t.Errorf("%s: step %d of peer %d has waited for %q, lost %v ms, rate %v", about, step, index, s.WaitFor, s.LostMS, s.LR)
						}
					}
				}
			})
		}
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// A slow network is in the reduction and in the commit record, and not in the wait for other peers.
func TestNetworkHasItsParts(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			delay := time.Duration(5+rand.New(rand.NewPCG(seed, 2)).IntN(40)) * time.Millisecond
			a := newArena(2, timing(5))
			a.cfg.GlobalBatch = 30
			a.network = simnet.New(simnet.Config{Seed: seed, Link: simnet.Link{Delay: delay}})
			a.play(t)
			a.check(t, delay.String())
			for index := range 2 {
				for step, s := range a.stepsOf(index) {
					// Each rank waits once for the last sum of the other one, and once for its record.
					want := 2 * milliseconds(delay)
					if got := s.ReduceMS + s.CommitMS; step > 1 && (math.Abs(got-want) > want/10 || s.WaitMS > want/10 || s.ComputeMS != 3) {
						t.Errorf("delay %v: step %d of peer %d is %+v in %v ms of computing", delay, step, index, s.Times, s.ComputeMS)
					}
				}
			}
		})
	}
}

// A peer that dies costs the others the time since they have computed their shares.
func TestDeathHasItsPart(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			pause := time.Duration(20+r.IntN(200)) * time.Millisecond
			step := 2 + r.Int64N(4)
			a := newArena(3, timing(7))
			a.adjust = func(x *actor) {
				if x.self.Index == 2 {
					x.trained = pausing{x.model, func(b *trainer.Batch) {
						if b.Step() == step {
							<-time.After(pause)
							x.kill()
						}
					}}
				}
			}
			a.play(t)
			about := fmt.Sprintf("killed after %v of step %d", pause, step)
			a.check(t, about)
			for index := range 2 {
				s, want := a.stepsOf(index)[step], milliseconds(pause)-3
				if math.Abs(s.LostMS-want) > want/10 {
					t.Errorf("%s: peer %d has lost %v ms, want %v: %+v", about, index, s.LostMS, want, s)
				}
				if s.ComputeMS < 3 || s.ComputeMS > 6 {
					t.Errorf("%s: peer %d has computed for %v ms", about, index, s.ComputeMS)
				}
			}
		})
	}
}

// What a peer of two hosts waits for while it computes the next step is in no part, and the update is in the step that it ends.
func TestOverlapHasItsParts(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := dyadic(10)
			cfg.Gradients.Delay = late
			cfg.Optimizer = slowRule{optim.SGD{Momentum: 0.5}, time.Millisecond}
			a := newArena(2, cfg)
			a.network = simnet.New(simnet.Config{Seed: 1, Link: simnet.Link{Delay: 2 * time.Millisecond}})
			models := a.eagerly(t, func(x *actor, m *eager) {
				if x.self.Index == 1 {
					m.pace = 4 * time.Millisecond
				}
			})
			a.play(t)
			about := fmt.Sprintf("delay %t", late)
			a.check(t, about)
			for _, m := range models() {
				if m.resumed.Load() < 8 {
					t.Errorf("%s: %d steps began early", about, m.resumed.Load())
				}
			}
			for index := range 2 {
				for step, s := range a.stepsOf(index) {
					most := 7.0 // each half of a parameter that has two
					if late {
						most = 4
					}
					if step > 1 && step < 10 && (s.ApplyMS < 4 || s.ApplyMS > most || s.LostMS != 0) {
						t.Errorf("%s: step %d of peer %d updates for %v ms: %+v", about, step, index, s.ApplyMS, s.Times)
					}
				}
			}
		})
	}
}
