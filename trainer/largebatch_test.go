package trainer_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/trainer"
)

// broad is an eager model that computes several microbatches in one call. It is not safe for concurrent use.
type broad struct {
	*eager
	most   int   // samples per call, at most
	memory int   // samples that fit in memory; 0 for no limit
	done   []int // samples of each call
}

func (b *broad) Model() trainer.Model {
	model := b.eager.Model()
	model.MaxSamples, model.Gradient = b.most, b.gradient
	return model
}

// fits records a call, and fails if the call exceeds the memory.
func (b *broad) fits(samples []int) error {
	if b.memory > 0 && len(samples) > b.memory {
		return fmt.Errorf("%d samples: %w", len(samples), trainer.ErrOutOfMemory)
	}
	b.done = append(b.done, len(samples))
	return nil
}

func (m *broad) gradient(b *trainer.Batch) (float64, error) {
	if err := m.forward(b); err != nil {
		return 0, err
	}
	grad := m.gradients(b)
	if err := m.fits(b.Samples()); err != nil {
		grad[0][0] = 1e9 // the failed call leaves a partial result
		return 0, err
	}
	return m.backward(b, grad)
}

// broadly makes the members of an arena train broad models, and returns the models.
func (a *arena) broadly(t *testing.T, most, memory int) (all func() []*broad) {
	eagers := a.eagerly(t, nil)
	a.adjust = wrapped(a.adjust, func(x *actor) { x.trained = &broad{eager: x.trained.(*eager), most: most, memory: memory} })
	return func() (models []*broad) {
		eagers()
		for _, x := range a.actors {
			switch m := x.trained.(type) {
			case *broad:
				models = append(models, m)
			case perMicrobatch:
				models = append(models, m.broad)
			case undivided:
				models = append(models, m.broad)
			}
		}
		return models
	}
}

// perMicrobatch is a broad model that computes the microbatches of a call separately.
type perMicrobatch struct {
	*broad
	wrong mistake
}

// mistake is a mistake of a model. The zero value means no mistake.
type mistake struct {
	skips func(k, i int) bool    // selects gradients that the model does not declare complete
	ends  func(b *trainer.Batch) // the last action of the model in a call
}

func (p perMicrobatch) Model() trainer.Model {
	model := p.broad.Model()
	model.Grouped, model.Gradient = true, p.gradient
	return model
}

func (p perMicrobatch) gradient(b *trainer.Batch) (float64, error) {
	if len(b.Groups()) == 1 {
		return p.broad.gradient(b)
	}
	if err := p.forward(b); err != nil {
		return 0, err
	}
	grad := p.gradients(b)
	if err := p.fits(b.Samples()); err != nil {
		grad[0][0] = 1e9
		return 0, err
	}
	<-time.After(p.pace)
	for i := len(grad) - 1; i >= 0; i-- {
		for k, g := range b.Groups() {
			if p.wrong.skips == nil || !p.wrong.skips(k, i) {
				p.add(g, i, grad[i])
			}
		}
	}
	for _, g := range b.Groups() {
		g.Loss(float64(len(g.Samples())))
	}
	if p.wrong.ends != nil {
		p.wrong.ends(b)
	}
	return 0, nil
}

// add adds the gradient of parameter i for a batch, in two pieces.
func (p perMicrobatch) add(g *trainer.Batch, i int, grad []float32) {
	for _, s := range g.Samples() {
		for j := range grad {
			grad[j] += element(s, i, j)
		}
	}
	if half := len(grad) / 2; half > 0 {
		g.Done(i, half)
	}
	g.Done(i, 0)
}

// In exact mode a Grouped model computes its whole share in one call, if there are several hosts. The weights are the same as
// with a single process that computes one microbatch after the other.
func TestExactMicrobatchesTogether(t *testing.T) {
	cfg := dyadic(6)
	cfg.Gradients.Exact = true
	want := oneAlone(t, cfg)
	for name, c := range map[string]struct {
		most, memory int
		samples      []int // samples of a step's calls
	}{
		"the whole share": {1000, 0, []int{16}},
		"most of it":      {15, 0, []int{4, 12}},
		"a microbatch":    {7, 0, []int{4, 4, 4, 4}},
		"little memory":   {16, 8, []int{8, 8}},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(2, cfg)
			models := a.broadly(t, c.most, c.memory)
			a.adjust = wrapped(a.adjust, func(x *actor) { x.trained = perMicrobatch{broad: x.trained.(*broad)} })
			a.play(t)
			if sha := a.check(t, name); sha != want {
				t.Errorf("%s: weights %s, want %s", name, sha, want)
			}
			for _, m := range models() {
				if want := slices.Repeat(c.samples, 6); !slices.Equal(m.done, want) {
					t.Errorf("%s: calls of %v samples, want %v", name, m.done, want)
				}
			}
		})
	}
}

// If a model makes a mistake with several microbatches in a call, the job ends with an error that describes it.
func TestWrongMicrobatchesTogether(t *testing.T) {
	for want, wrong := range map[string]mistake{
		"Done(0, 0) of group 1":   {skips: func(k, i int) bool { return k > 0 && i == 0 }},
		"in the last group first": {skips: func(k, i int) bool { return k == 1 && i == 0 }, ends: func(b *trainer.Batch) { b.Groups()[1].Done(0, 0) }},
		"out of range":            {ends: func(b *trainer.Batch) { b.Done(9, 0) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := dyadic(3)
			cfg.Gradients.Exact = true
			a := newArena(2, cfg)
			models := a.broadly(t, 1000, 0)
			a.adjust = wrapped(a.adjust, func(x *actor) { x.trained = perMicrobatch{x.trained.(*broad), wrong} })
			a.play(t)
			models()
			for _, x := range a.actors {
				if x.err == nil || !strings.Contains(x.err.Error(), want) {
					t.Errorf("error %v, want %q", x.err, want)
				}
			}
		})
	}
}

// With several hosts a call has as many microbatches as the model can take; within one host a call has one microbatch. The weights
// are the same.
func TestMicrobatchesTogether(t *testing.T) {
	want := oneAlone(t, dyadic(6))
	for name, c := range map[string]struct {
		most    int
		change  func(a *arena)
		samples []int // samples of a step's calls
		late    bool  // no step begins early
	}{
		"the whole share":   {1000, func(*arena) {}, []int{16}, false},
		"most of it":        {15, func(*arena) {}, []int{4, 12}, false},
		"a microbatch":      {7, func(*arena) {}, []int{4, 4, 4, 4}, false},
		"within a host":     {1000, func(a *arena) { a.first[0].Host, a.first[1].Host = "here", "here" }, []int{4, 4, 4, 4}, true},
		"exact":             {1000, func(a *arena) { a.cfg.Gradients.Exact = true }, []int{4, 4, 4, 4}, true},
		"one after another": {1000, func(a *arena) { a.cfg.Gradients.Clip = 1e9 }, []int{16}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(2, dyadic(6))
			c.change(a)
			models := a.broadly(t, c.most, 0)
			a.play(t)
			if sha := a.check(t, name); !a.cfg.Gradients.Exact && sha != want {
				t.Errorf("%s: weights %s, want %s", name, sha, want)
			}
			for _, m := range models() {
				if want := slices.Repeat(c.samples, 6); !slices.Equal(m.done, want) {
					t.Errorf("%s: calls of %v samples, want %v", name, m.done, want)
				}
				if n := m.resumed.Load(); (n == 0) != c.late || !c.late && n != 5 {
					t.Errorf("%s: %d steps have begun early", name, n)
				}
			}
		})
	}
}

// If the calls of a model run out of memory, the model gets smaller calls, and still computes its whole share.
func TestOutOfMemoryMakesCallsShorter(t *testing.T) {
	want := oneAlone(t, dyadic(6))
	synctest.Test(t, func(t *testing.T) {
		a := newArena(2, dyadic(6))
		models := a.broadly(t, 1000, 6)
		var told atomic.Value
		a.adjust = wrapped(a.adjust, func(x *actor) {
			x.cfg.Hooks.Log = func(line string) { told.Store(line) }
		})
		a.play(t)
		if sha := a.check(t, "short of memory"); sha != want {
			t.Errorf("weights %s, want %s", sha, want)
		}
		for _, m := range models() {
			if want := slices.Repeat([]int{4, 4, 4, 4}, 6); !slices.Equal(m.done, want) {
				t.Errorf("calls of %v samples, want %v", m.done, want)
			}
		}
		if line, _ := told.Load().(string); !strings.Contains(line, "at most 4 samples at once") {
			t.Errorf("the log has %q", line)
		}
	})
}

// A peer dies before one of its messages, while models compute whole shares in one call. The test tries many messages.
func TestKillWhileMicrobatchesAreTogether(t *testing.T) {
	t.Parallel()
	for _, exactly := range []bool{false, true} {
		t.Run(fmt.Sprintf("exact %t", exactly), func(t *testing.T) { killBroad(t, exactly) })
	}
}

// killBroad kills one of three peers, at many points of a job.
func killBroad(t *testing.T, exactly bool) {
	cfg := dyadic(8)
	cfg.Gradients.Exact = exactly
	want := oneAlone(t, cfg)
	play := func(t *testing.T, about string, kill func(simnet.Message) bool) *staged {
		s := stage(3, cfg, kill)
		models := s.broadly(t, 1000, 0)
		s.adjust = wrapped(s.adjust, func(x *actor) {
			m := x.trained.(*broad)
			m.pace = 15 * time.Millisecond
			x.trained = perMicrobatch{broad: m}
		})
		s.play(t)
		if sha := s.check(t, about); sha != want {
			t.Errorf("%s: weights %s, want %s", about, sha, want)
		}
		models()
		return s
	}
	var sent census
	synctest.Test(t, func(t *testing.T) { play(t, "no kill", sent.add) })
	points := sent.points(pick(1, dozen), "data")
	inParallel(t, len(points), func(t *testing.T, i int) {
		play(t, points[i].String(), points[i].kill())
	})
	t.Logf("%d kills", len(points))
}

// A model with Whole gets its share in one call, also within one host, and in two calls if there is too little memory.
func TestWholeShares(t *testing.T) {
	want := oneAlone(t, dyadic(6))
	for _, host := range []string{"", "here"} {
		for _, memory := range []int{0, 12} {
			synctest.Test(t, func(t *testing.T) {
				a := newArena(2, dyadic(6))
				a.first[0].Host, a.first[1].Host = host, host
				models := a.broadly(t, 0, memory)
				a.adjust = wrapped(a.adjust, func(x *actor) { x.trained = undivided{x.trained.(*broad)} })
				a.play(t)
				about := fmt.Sprintf("host %q, memory for %d samples", host, memory)
				if sha := a.check(t, about); sha != want {
					t.Errorf("%s: weights %s, want %s", about, sha, want)
				}
				for _, m := range models() {
					if last := m.done[len(m.done)-1]; memory == 0 && (last != 16 || len(m.done) != 6) || memory > 0 && last != 8 {
						t.Errorf("%s: calls of %d samples", about, m.done)
					}
				}
			})
		}
	}
}

// MaxSamples bounds the calls of a model with Whole, within a host, too.
func TestWholeSharesAreBounded(t *testing.T) {
	want := oneAlone(t, dyadic(6))
	synctest.Test(t, func(t *testing.T) {
		a := newArena(2, dyadic(6))
		a.first[0].Host, a.first[1].Host = "here", "here"
		models := a.broadly(t, 8, 0)
		a.adjust = wrapped(a.adjust, func(x *actor) { x.trained = undivided{x.trained.(*broad)} })
		a.play(t)
		if sha := a.check(t, "bounded"); sha != want {
			t.Errorf("weights %s, want %s", sha, want)
		}
		for _, m := range models() {
			if slices.Max(m.done) > 8 || len(m.done) != 12 {
				t.Errorf("calls of %d samples, want two of 8 a step", m.done)
			}
		}
	})
}

// In exact mode the result must not depend on shares, so a model with Whole is refused.
func TestWholeSharesAreNotExact(t *testing.T) {
	cfg := dyadic(6)
	cfg.Gradients.Exact = true
	synctest.Test(t, func(t *testing.T) {
		a := newArena(1, cfg)
		a.broadly(t, 0, 0)
		a.adjust = wrapped(a.adjust, func(x *actor) { x.trained = undivided{x.trained.(*broad)} })
		a.play(t)
		if err := a.actors[0].err; err == nil || !strings.Contains(err.Error(), "Model.Whole and Gradients.Exact are both set") {
			t.Errorf("error %v", err)
		}
	})
}

// undivided is a broad model with Whole.
type undivided struct{ *broad }

func (u undivided) Model() trainer.Model {
	model := u.broad.Model()
	model.Whole = true
	return model
}
