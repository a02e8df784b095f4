package trainer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/optim"
)

// delayed is like churning, with Gradients.Delay.
func delayed(steps int64, exactly bool) trainer.Config {
	cfg := churning(steps, exactly)
	cfg.Gradients.Delay = true
	return cfg
}

// Gradients are computed with parameters to which all sums except the last sum are applied. At the end every sum is applied.
func TestDelayIsThatOfTheTwin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(1, delayed(7, false))
		var samples [][]int // by step
		a.adjust = func(x *actor) {
			begin := x.cfg.Hooks.OnBegin
			x.cfg.Hooks.OnBegin = func(step int64) {
				samples = append(samples, nil)
				if begin != nil {
					begin(step)
				}
			}
			x.trained = seeing{x.model, func(part []int) { samples[len(samples)-1] = append(samples[len(samples)-1], part...) }}
		}
		a.play(t)
		a.check(t, "alone")
		m := a.actors[0].model
		for i, p := range m.params {
			for j, got := range p.Data {
				w, v, outstanding := 0.0, 0.0, math.NaN()
				apply := func() {
					if !math.IsNaN(outstanding) {
						v = 0.5*v + outstanding
						w -= 0.25 * v
					}
				}
				for _, part := range samples {
					g := 0.0
					for _, s := range part {
						g += w - math.Sin(float64(s*31+i*17+j*7))
					}
					apply()
					outstanding = g / float64(len(part))
				}
				if apply(); math.Abs(float64(got)-w) > 1e-5 {
					t.Errorf("element %d of %s is %v, want %v", j, p.Name, got, w)
				}
			}
		}
	})
}

// seeing is a model that passes the samples of each call to a function.
type seeing struct {
	*slope
	tell func(samples []int)
}

func (s seeing) Model() trainer.Model {
	return around(s.slope.Model(), func(b *trainer.Batch, gradient func(b *trainer.Batch) (float64, error)) (float64, error) {
		s.tell(b.Samples())
		return gradient(b)
	})
}

// With Delay any model computes a step while the previous step is reduced, also in exact mode, with clipping and with codings.
// Here the gradients do not depend on the parameters, so the weights are the same as without Delay.
func TestDelayedStepsBeginEarly(t *testing.T) {
	for name, change := range map[string]func(c *trainer.Config){
		"momentum":   func(*trainer.Config) {},
		"adam":       func(c *trainer.Config) { c.Optimizer = optim.Adam{} },
		"exact":      func(c *trainer.Config) { c.Gradients.Exact = true },
		"clip":       func(c *trainer.Config) { c.Gradients.Clip = 1 },
		"compressed": func(c *trainer.Config) { c.Gradients.Compression = "int8" },
	} {
		cfg := dyadic(10)
		change(&cfg)
		for n := 1; n <= 4; n += 1 + n%2 { // n = 1, 3, 4
			about := fmt.Sprintf("%s, %d peers", name, n)
			want, _ := beginning(t, about, n, cfg, func(x *actor, m *eager) { x.trained = lazy{m} })
			late := cfg
			late.Gradients.Delay = true
			for _, waits := range []bool{false, true} {
				got, models := beginning(t, about+", delayed", n, late, func(x *actor, m *eager) {
					if !waits {
						x.trained = lazy{m}
					}
				})
				for i, x := range got {
					if x.result.SHA256 != want[i].result.SHA256 {
						t.Errorf("%s: weights %s, without delay %s", about, x.result.SHA256, want[i].result.SHA256)
					}
				}
				early := int32(9)
				if n == 1 {
					early = 0
				}
				for _, m := range models {
					// In exact mode all ranks repeat the first step with another scale.
					if p, r := m.passes.Load(), m.resumed.Load(); r != early || p > r+1 || p > r && !cfg.Gradients.Exact {
						t.Errorf("%s: %d calls before the step, %d of use, want %d", about, p, r, early)
					}
				}
			}
		}
	}
}

// A peer dies before one of its messages, and another peer joins. The test tries each peer and many messages. In exact mode the
// job still ends with the weights of a single process, although the gradients depend on the parameters.
func TestKillWithDelay(t *testing.T) {
	t.Parallel()
	cfg := delayed(10, true)
	want := alone(t, cfg)
	if late := alone(t, churning(10, true)); late == want {
		t.Fatal("the delay changes nothing: this shows nothing")
	}
	for _, n := range []int{2, 4} {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(n, cfg)
			a.play(t)
			if sha := a.check(t, "undisturbed"); sha != want {
				t.Errorf("%d peers: weights %s, one has %s", n, sha, want)
			}
		})
	}
	var sent census
	synctest.Test(t, func(t *testing.T) {
		s := stage(3, cfg, sent.add)
		s.play(t)
		if sha := s.check(t, "no kill"); sha != want {
			t.Errorf("weights %s, want %s", sha, want)
		}
		if n := len(s.actor(latecomer).steps); n < 2 {
			t.Errorf("the newcomer has contributed to %d steps only", n)
		}
		for i, x := range s.actors {
			if again := of[event.Resync](&s.events, i); len(again) > 1 { // a newcomer gets one copy
				t.Errorf("%s: %+v", x.self.ID, again)
			}
		}
	})
	points := sent.points(pick(1, dozen), "data")
	t.Run("points", func(t *testing.T) {
		inParallel(t, len(points), func(t *testing.T, i int) {
			s := stage(3, cfg, points[i].kill())
			s.play(t)
			if sha := s.check(t, points[i].String()); sha != want {
				t.Errorf("%v: weights %s, want %s", points[i], sha, want)
			}
		})
	})
}

// A checkpoint contains the gradient that is not applied yet, also if the next step has begun early, and after the last step.
func TestCheckpointsWithDelay(t *testing.T) {
	for _, every := range []int64{5, 7} {
		cfg := delayed(9, true)
		want := alone(t, cfg)
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			cfg := cfg
			cfg.Steps, cfg.Checkpoint = 7, trainer.Checkpoint{Dir: dir, EverySteps: every}
			a := newArena(2, cfg)
			a.play(t)
			a.check(t, "saving")
		})
		x, told := resumed(t, dir, cfg)
		if x.err != nil || x.result.SHA256 != want || x.steps[0].Step != every+1 {
			t.Errorf("error %v; from step %d on to the weights %v, want %s; log %q", x.err, x.steps[0].Step, x.result, want, told)
		}
	}
}

// A peer computes its whole share of a step before the previous step is committed, even if the speeds of the peers have
// changed.
func TestDelayedSharesAreKnownEarly(t *testing.T) {
	cfg := dyadic(12)
	want := oneAlone(t, cfg)
	cfg.Balancing.Policy, cfg.Gradients.Delay = trainer.DefaultBalance, true
	synctest.Test(t, func(t *testing.T) {
		a := newArena(3, cfg)
		models := a.eagerly(t, func(x *actor, m *eager) { m.pace *= time.Duration(1 + 3*x.self.Index) })
		a.play(t)
		if sha := a.check(t, "unequal peers"); sha != want {
			t.Errorf("weights %s, want %s", sha, want)
		}
		for i, m := range models() {
			if p, r := m.passes.Load(), m.resumed.Load(); p != r || p != 11 {
				t.Errorf("peer %d: %d calls before the step, %d of use, want 11", i, p, r)
			}
		}
		first, last := a.actors[0].steps[0].Microbatches, a.actors[0].steps[11].Microbatches
		if slices.Equal(first, last) {
			t.Errorf("shares have not changed: %v and %v", first, last)
		}
	})
}

// A job without Delay does not resume from the checkpoint of a job with Delay.
func TestDelayIsASetting(t *testing.T) {
	dir := save(t, 1, delayed(4, false), 2)
	x, _ := resumed(t, dir, churning(6, false))
	if x.err == nil {
		t.Error("a job without the delay resumes from a checkpoint with an outstanding gradient")
	}
}

// If a step has begun early and the session ends, Batch.Err tells the model to stop computing the step.
func TestDelayedStepsEndWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(3, delayed(4, false))
		var gaveUp atomic.Int32
		a.adjust = func(x *actor) {
			kills := x.self.Index == 1
			x.trained = lookingUp{x.model, func(b *trainer.Batch) error {
				for range 1000 {
					if b.Err() != nil {
						gaveUp.Add(1)
						return b.Err()
					}
					<-time.After(time.Millisecond)
					if kills && b.Step() == 3 && x.tries[3] == 0 {
						x.kill()
					}
				}
				return nil
			}}
		}
		a.play(t)
		a.check(t, "a death in a step that has begun early")
		if gaveUp.Load() == 0 {
			t.Error("the remaining peer has computed a useless step to its end")
		}
	})
}

// The evaluation uses parameters with the delayed gradient. If the evaluation fails, the parameters are again the parameters of
// the last committed step.
func TestDelayedEvaluationThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(1, delayed(4, false))
		failed := errors.New("no test set")
		var evaluated []float32
		a.adjust = func(x *actor) {
			x.cfg.Evaluate = func(context.Context, int, int) (trainer.Score, error) {
				evaluated = slices.Clone(x.model.params[3].Data)
				return trainer.Score{}, failed
			}
		}
		a.play(t)
		x := a.actors[0]
		if !errors.Is(x.err, failed) {
			t.Errorf("error %v, want that of the evaluation", x.err)
		}
		if after := x.model.params[3].Data; evaluated == nil || slices.Equal(after, evaluated) {
			t.Errorf("parameters are %v, in the evaluation they were %v", after, evaluated)
		}
	})
}

// lookingUp is a model that runs a function before each call.
type lookingUp struct {
	*slope
	before func(b *trainer.Batch) error
}

func (l lookingUp) Model() trainer.Model {
	return around(l.slope.Model(), func(b *trainer.Batch, gradient func(b *trainer.Batch) (float64, error)) (float64, error) {
		if err := l.before(b); err != nil {
			return 0, err
		}
		return gradient(b)
	})
}
