package trainer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/optim"
)

// dyadic returns a job whose weights are sums of powers of two, and therefore exact.
func dyadic(steps int64) trainer.Config {
	return trainer.Config{Samples: 96, GlobalBatch: 32, Microbatch: 4, Steps: steps, Seed: 4,
		Gradients: trainer.Gradients{BucketBytes: 24}, Balancing: trainer.Balancing{Policy: "equal", Admit: trainer.AdmitAlways},
		Optimizer: optim.SGD{Momentum: 0.5}, Schedule: optim.Constant(0.25)}
}

// eagerly makes the members of an arena train eager models, and returns the models.
func (a *arena) eagerly(t *testing.T, change func(x *actor, m *eager)) (all func() []*eager) {
	before := a.adjust
	a.adjust = func(x *actor) {
		m := newEager()
		x.trained = m
		if before != nil {
			before(x)
		}
		if change != nil {
			change(x, m)
		}
		begin := x.cfg.Hooks.OnBegin
		x.cfg.Hooks.OnBegin = func(step int64) {
			m.begin()
			if begin != nil {
				begin(step)
			}
		}
	}
	return func() (models []*eager) {
		for _, x := range a.actors {
			if m, ok := x.trained.(*eager); ok {
				if models = append(models, m); m.wrong.Load() {
					t.Errorf("%s: parameters changed between the stages of a step", x.self.ID)
				}
			}
		}
		return models
	}
}

// oneAlone returns the weights of a single process, and checks that the process begins no step early.
func oneAlone(t *testing.T, cfg trainer.Config) (sha string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := newArena(1, cfg)
		models := a.eagerly(t, nil)
		a.play(t)
		sha = a.check(t, "alone")
		if n := models()[0].passes.Load(); n != 0 {
			t.Errorf("%d forward passes of a single peer", n)
		}
	})
	return sha
}

// Steps that begin early do not change a bit of the weights. Each step except the first begins early at every peer.
func TestStepsThatBeginEarly(t *testing.T) {
	for name, change := range map[string]func(c *trainer.Config){
		"momentum":   func(*trainer.Config) {},
		"adam":       func(c *trainer.Config) { c.Optimizer = optim.Adam{} },
		"one bucket": func(c *trainer.Config) { c.Gradients.BucketBytes = 1 << 20 },
		"compressed": func(c *trainer.Config) { c.Gradients.Compression = "int8" },
		"decay":      func(c *trainer.Config) { c.Optimizer = optim.SGD{WeightDecay: 0.5} },
	} {
		cfg := dyadic(10)
		change(&cfg)
		for n := 2; n <= 4; n++ {
			about := fmt.Sprintf("%s, %d peers", name, n)
			late, _ := beginning(t, about, n, cfg, func(x *actor, m *eager) { x.trained = lazy{m} })
			early, models := beginning(t, about, n, cfg, nil)
			for i, x := range early {
				if want := late[i].result.SHA256; x.result.SHA256 != want {
					t.Errorf("%s: weights %s, those of steps one after the other %s", about, x.result.SHA256, want)
				}
				for k, s := range x.steps {
					if want := late[i].steps[k]; s.Digest != want.Digest || s.Loss != want.Loss || s.Compute != want.Compute {
						t.Errorf("%s: report %+v, of steps one after the other %+v", about, s, want)
					}
				}
			}
			for _, m := range models {
				if p, r := m.passes.Load(), m.resumed.Load(); p != 9 || r != 9 {
					t.Errorf("%s: %d forward passes, %d of use, want 9 of each", about, p, r)
				}
			}
			halves, _ := beginning(t, about+" that end in the middle of a parameter", n, cfg, func(_ *actor, m *eager) { m.broken = 1 })
			for i, x := range halves {
				if want := late[i].result.SHA256; x.result.SHA256 != want {
					t.Errorf("%s: weights %s of steps that began in the middle of a parameter, want %s", about, x.result.SHA256, want)
				}
			}
		}
	}
}

// beginning plays a job of n peers and returns the peers and their models.
func beginning(t *testing.T, about string, n int, cfg trainer.Config, change func(x *actor, m *eager)) (all []*actor, models []*eager) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := newArena(n, cfg)
		done := a.eagerly(t, change)
		a.play(t)
		a.check(t, about)
		all, models = a.actors, done()
	})
	slices.SortFunc(all, func(x, y *actor) int { return x.self.Index - y.self.Index })
	return all, models
}

// No step begins early if an update depends on all sums together, or if all peers are on one host.
func TestStepsThatWait(t *testing.T) {
	for name, change := range map[string]func(a *arena){
		"exact":    func(a *arena) { a.cfg.Gradients.Exact = true },
		"clip":     func(a *arena) { a.cfg.Gradients.Clip = 1 },
		"one host": func(a *arena) { a.first[0].Host, a.first[1].Host = "here", "here" },
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(2, dyadic(5))
			change(a)
			models := a.eagerly(t, nil)
			a.play(t)
			a.check(t, name)
			for _, m := range models() {
				if n := m.passes.Load(); n != 0 {
					t.Errorf("%s: %d forward passes", name, n)
				}
			}
		})
	}
}

// A peer dies before one of its messages, and others join. The test tries many messages. When the peer dies, the parameters may
// belong to an uncommitted step. The weights are the same as with a single process.
func TestKillWhileStepsBeginEarly(t *testing.T) {
	t.Parallel()
	cfg := dyadic(8)
	want := oneAlone(t, cfg)
	play := func(t *testing.T, about string, kill func(simnet.Message) bool) (s *staged, resumed int32) {
		s = stage(3, cfg, kill)
		models := s.eagerly(t, func(_ *actor, m *eager) { m.pace = 15 * time.Millisecond })
		s.play(t)
		if sha := s.check(t, about); sha != want {
			t.Errorf("%s: weights %s, want %s", about, sha, want)
		}
		for _, m := range models() {
			resumed += m.resumed.Load()
		}
		return s, resumed
	}
	var sent census
	synctest.Test(t, func(t *testing.T) {
		s, resumed := play(t, "no kill", sent.add)
		if resumed == 0 {
			t.Error("no step has begun early")
		}
		for _, x := range s.actors {
			for _, r := range x.steps { // the time for computing does not include waiting for the network
				if want := time.Duration(r.ShareSamples/cfg.Microbatch) * 30 * time.Millisecond; r.Compute != want {
					t.Errorf("%s computed %d samples of step %d in %v, want %v", x.self.ID, r.ShareSamples, r.Step, r.Compute, want)
				}
			}
		}
	})
	points := sent.points(pick(1, dozen), "data")
	var met kills
	t.Run("points", func(t *testing.T) {
		inParallel(t, len(points), func(t *testing.T, i int) {
			s, _ := play(t, points[i].String(), points[i].kill())
			for _, class := range s.kills {
				met.add(class)
			}
		})
	})
	t.Log(met.table())
	met.want(t, pick(30, 50), "data: commit record")
}

// If a checkpoint is written while a step begins early, it has the state of the stable step.
func TestCheckpointsOfStepsThatBeginEarly(t *testing.T) {
	want := oneAlone(t, dyadic(9))
	for _, broken := range []int{0, 1} {
		saveAndGoOn(t, want, func(m *eager) { m.broken = broken })
	}
}

// saveAndGoOn saves the state after 5 of 7 steps, and checks that a job resumes from it and ends with the wanted weights.
func saveAndGoOn(t *testing.T, want string, change func(m *eager)) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "checkpoints")
	for _, steps := range []int64{7, 9} { // in both jobs step 5 is not the step before the last
		synctest.Test(t, func(t *testing.T) {
			cfg := dyadic(steps)
			cfg.Checkpoint = trainer.Checkpoint{Dir: dir, EverySteps: 5, Resume: dir}
			if steps == 7 {
				cfg.Checkpoint.Resume = ""
			}
			a := newArena(2, cfg)
			if steps == 9 {
				a.first[0].ID, a.first[1].ID = "another-job-0", "another-job-1"
			}
			models := a.eagerly(t, func(_ *actor, m *eager) { change(m) })
			a.play(t)
			models()
			for _, x := range a.actors {
				if x.err != nil {
					t.Fatal(x.err)
				}
				if steps == 9 && (x.result.SHA256 != want || x.steps[0].Step != 6) {
					t.Errorf("from step %d on to the weights %s, want %s", x.steps[0].Step, x.result.SHA256, want)
				}
			}
		})
	}
}

// If a gradient is not finite, at one peer or only in the sum, the job ends at all peers, with the parameters of the previous
// step.
func TestNotFiniteWhileAStepBeginsEarly(t *testing.T) {
	var seen []int // samples of the steps of a single peer, in order
	synctest.Test(t, func(t *testing.T) {
		a := newArena(1, dyadic(3))
		a.eagerly(t, nil)
		a.adjust = wrapped(a.adjust, func(x *actor) {
			x.trained = spy{x.trained.(*eager), func(samples []int) { seen = append(seen, samples...) }}
		})
		a.play(t)
	})
	var want []trainer.Param
	synctest.Test(t, func(t *testing.T) {
		a := newArena(1, dyadic(2))
		models := a.eagerly(t, nil)
		a.play(t)
		want = models()[0].params
	})
	third := seen[64:96]
	for name, change := range map[string]func(m *eager){
		"one sample":  func(m *eager) { m.bad, m.worse = third[7:8], float32(math.Inf(1)) },
		"all of them": func(m *eager) { m.bad, m.worse = third, 2e37 },
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(3, dyadic(5))
			models := a.eagerly(t, func(_ *actor, m *eager) { change(m) })
			a.play(t)
			for _, x := range a.actors {
				if !errors.Is(x.err, trainer.ErrNotFinite) {
					t.Errorf("%s: %s: error %v", name, x.self.ID, x.err)
				}
			}
			for _, m := range models() {
				for i, p := range m.params {
					if !slices.Equal(p.Data, want[i].Data) {
						t.Errorf("%s: %s is %v, after step 2 it was %v", name, p.Name, p.Data, want[i].Data)
					}
				}
			}
		})
	}
}

// spy is a model that passes the samples of each call to a function.
type spy struct {
	*eager
	tell func(samples []int)
}

func (s spy) Model() trainer.Model {
	model := s.eager.Model()
	gradient := model.Gradient
	model.Gradient = func(b *trainer.Batch) (float64, error) {
		s.tell(b.Samples())
		return gradient(b)
	}
	return model
}

// wrapped combines two functions that adjust an actor.
func wrapped(first, second func(x *actor)) func(x *actor) {
	return func(x *actor) {
		first(x)
		second(x)
	}
}

// If a peer has begun a call early and its share then changes, the call may have the wrong microbatches. Then the peer makes another
// call with the right microbatches.
func TestSharesThatChangeWhileStepsBeginEarly(t *testing.T) {
	cfg := dyadic(10)
	cfg.Balancing.Policy = trainer.DefaultBalance
	want := oneAlone(t, dyadic(10))
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(3, cfg)
			models := a.eagerly(t, func(x *actor, m *eager) {
				m.pace *= time.Duration(1 + 3*x.self.Index)
				m.deaf = deaf
			})
			a.play(t)
			if sha := a.check(t, "unequal peers"); sha != want {
				t.Errorf("weights %s, want %s", sha, want)
			}
			unused := int32(0)
			for _, m := range models() {
				unused += m.passes.Load() - m.resumed.Load()
			}
			if unused == 0 {
				t.Error("shares have not changed: this shows nothing")
			}
		})
	}
}

// If a job's context ends, a step that has begun early ends too, and is rolled back.
func TestCancelWhileAStepBeginsEarly(t *testing.T) {
	for _, broken := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) { cancelEarly(t, broken) })
	}
}

// cancelEarly ends a job when the next step has begun. broken is the value of eager.broken at rank 0: the parameter at which that
// model fails, 0 for none.
func cancelEarly(t *testing.T, broken int) {
	t.Helper()
	a := newArena(2, dyadic(10))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var after [2][][]float32 // parameters when a step began last
	models := a.eagerly(t, func(x *actor, m *eager) {
		x.cfg.Hooks.OnBegin = func(step int64) {
			after[x.self.Index] = nil
			for _, p := range m.params {
				after[x.self.Index] = append(after[x.self.Index], slices.Clone(p.Data))
			}
		}
		if x.self.Index == 0 {
			m.broken = broken
			// When the model reads parameter 3, the sums of parameters 1 and 0 have not arrived, because of the gap at rank 1.
			m.reading = func(i int) {
				if i == 3 && m.tries == 5 && m.calls == 4 { // three calls belong to this step, and the fourth to the next step
					cancel()
				}
			}
		} else {
			m.gap = time.Second
		}
	})
	a.playUntil(t, ctx)
	for i, m := range models() {
		if x := a.actors[i]; !errors.Is(x.err, context.Canceled) {
			t.Errorf("%s: error %v", x.self.ID, x.err)
		}
		for k, p := range m.params {
			if before := after[a.actors[i].self.Index]; !slices.Equal(p.Data, before[k]) {
				t.Errorf("%s of %s is %v, was %v", p.Name, a.actors[i].self.ID, p.Data, before[k])
			}
		}
	}
}
