package trainer_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/optim"
)

// ownMomentum is the Updater of a program: stochastic gradient descent with momentum, as churning has it. It changes the gradient
// memory, as programs do that clip.
type ownMomentum struct {
	m        trainer.Model
	velocity [][]float32
	commits  []optim.Commit
	loads    int
	fails    int64 // the step at which Apply fails; 0 for none
}

func (o *ownMomentum) Apply(c optim.Commit, mean [][]float32) error {
	if c.Step == o.fails {
		return errors.New("the program has raised an exception")
	}
	o.commits = append(o.commits, c)
	for i, v := range mean {
		if !slices.Equal(o.m.Grads[i], v) {
			return fmt.Errorf("parameter %d: Model.Grads has no copy of the mean", i)
		}
		optim.SGD{Momentum: 0.5}.Update(c.Step, 0.25, o.m.Params[i].Data, o.m.Grads[i], [][]float32{o.velocity[i]})
		clear(o.m.Grads[i])
	}
	return nil
}

func (o *ownMomentum) Save() (b []byte, err error) {
	for _, v := range o.velocity {
		for _, x := range v {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
	}
	return b, nil
}

func (o *ownMomentum) Load(b []byte) error {
	o.loads++
	for _, v := range o.velocity {
		for j := range v {
			if len(b) < 4 {
				return errors.New("too short")
			}
			v[j], b = math.Float32frombits(binary.LittleEndian.Uint32(b)), b[4:]
		}
	}
	return nil
}

// updated lets the programs of an arena update their parameters, in gradient memory of their own. It returns the Updater of each.
func (a *arena) updated(change func(x *actor, o *ownMomentum)) map[*actor]*ownMomentum {
	all := make(map[*actor]*ownMomentum)
	before := a.adjust
	a.cfg.Optimizer, a.cfg.Schedule = nil, nil
	a.adjust = func(x *actor) {
		o := &ownMomentum{}
		all[x] = o
		var sizes []int
		total := 0
		for _, p := range x.model.params {
			sizes, total = append(sizes, len(p.Data)), total+len(p.Data)
			o.velocity = append(o.velocity, make([]float32, len(p.Data)))
		}
		x.trained = modelOf(func() trainer.Model {
			m := x.model.Model()
			if x.cfg.Gradients.Exact {
				_, m.Grads = exact.Views(sizes)
			} else {
				flat := make([]float32, total)
				for _, n := range sizes {
					m.Grads, flat = append(m.Grads, flat[:n]), flat[n:]
				}
			}
			m.Updater = o
			o.m = m
			return m
		})
		if before != nil {
			before(x)
		}
		if change != nil {
			change(x, o)
		}
	}
	return all
}

// modelOf is a function that returns a model.
type modelOf func() trainer.Model

func (m modelOf) Model() trainer.Model { return m() }

// An Updater that does what the optimizer does gives its weights, to the bit in exact mode, also if a member dies before any of
// its messages.
func TestUpdaterIsAnOptimizer(t *testing.T) {
	t.Parallel()
	for _, exactly := range []bool{false, true} {
		cfg := churning(5, exactly)
		want := alone(t, cfg)
		messages := int64(1 << 30)
		for k := int64(0); k <= messages; k += pick[int64](11, 3) {
			synctest.Test(t, func(t *testing.T) {
				about := fmt.Sprintf("exact %t: killed at message %d", exactly, k)
				a := newArena(3, cfg)
				all := a.updated(func(x *actor, o *ownMomentum) {
					if x.self.Index == 1 {
						x.killAt.Store(k)
					}
				})
				a.play(t)
				sha := a.check(t, about)
				if exactly && sha != want {
					t.Errorf("%s: weights %s, want %s", about, sha, want)
				}
				for x, o := range all {
					if !x.killed.Load() && (len(o.commits) != 5 || o.commits[4].Samples != 40 || o.commits[4].Loss == 0) {
						t.Errorf("%s: commits %+v", about, o.commits)
					}
				}
				if !a.actors[1].killed.Load() && k > 0 {
					messages = 0
				}
			})
		}
	}
}

// A peer that joins gets the state of the Updater, and a checkpoint has it: the weights are those of an undisturbed process.
func TestUpdaterStateGoesAlong(t *testing.T) {
	cfg := churning(40, true)
	want := alone(t, cfg)
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newArena(2, cfg)
		a.cfg.Checkpoint = trainer.Checkpoint{Dir: dir, EverySteps: 10}
		var late *actor
		all := a.updated(func(x *actor, o *ownMomentum) {
			if x.self.Index == 0 {
				x.cfg.Hooks.OnBegin = func(step int64) {
					if step == 5 && late == nil {
						late = a.start(elastic.Member{ID: "late", Index: 2}, nil)
					}
				}
			}
		})
		a.play(t)
		if sha := a.check(t, "a join"); sha != want {
			t.Errorf("weights %s, want %s", sha, want)
		}
		if late == nil || all[late].loads == 0 {
			t.Error("the newcomer got no state")
		}
	})
	longer := churning(60, true)
	want = alone(t, longer)
	for _, n := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(n, longer)
			a.cfg.Checkpoint.Resume = dir
			all := a.updated(nil)
			a.play(t)
			for _, x := range a.actors {
				if x.err != nil || x.result.SHA256 != want {
					t.Errorf("resumed by %d: error %v, result %v", n, x.err, x.result)
				}
			}
			if o := all[a.actors[0]]; o.commits[0].Step != 41 {
				t.Errorf("begins with step %d", o.commits[0].Step)
			}
		})
	}
	// Without the Updater the checkpoint is refused, by name.
	synctest.Test(t, func(t *testing.T) {
		a := newArena(1, longer)
		a.cfg.Checkpoint.Resume = dir
		a.play(t)
		if err := a.actors[0].err; err == nil || !strings.Contains(err.Error(), "optimizer") {
			t.Errorf("error %v", err)
		}
	})
}

// Peers whose Updaters begin with different states take that of the lowest rank.
func TestUpdatersBeginAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(3, churning(5, true))
		all := a.updated(func(x *actor, o *ownMomentum) { o.velocity[0][0] = float32(x.self.Index) })
		a.play(t)
		a.check(t, "other states")
		if all[a.actors[0]].loads != 0 || all[a.actors[1]].loads == 0 || all[a.actors[2]].loads == 0 {
			t.Error("want the state of rank 0 at all")
		}
	})
}

// If an Updater fails at one peer, this peer ends with its error, and the others finish.
func TestUpdaterFails(t *testing.T) {
	cfg := churning(9, true)
	want := alone(t, cfg)
	synctest.Test(t, func(t *testing.T) {
		a := newArena(3, cfg)
		a.updated(func(x *actor, o *ownMomentum) {
			if x.self.Index == 1 {
				o.fails = 4
			}
		})
		a.play(t)
		for i, x := range a.actors {
			switch {
			case i == 1:
				if x.err == nil || !strings.Contains(x.err.Error(), "has raised an exception") {
					t.Errorf("error %v", x.err)
				}
			case x.err != nil || x.result.SHA256 != want:
				t.Errorf("%s: %v, %+v", x.self.ID, x.err, x.result)
			}
		}
	})
}

// scaler is an Updater that leaves out steps whose gradients are not finite.
type scaler struct {
	*ownMomentum
	left []int64
}

func (s *scaler) Apply(c optim.Commit, mean [][]float32) error {
	for _, v := range mean {
		for _, x := range v {
			if math.IsInf(float64(x), 0) || math.IsNaN(float64(x)) {
				s.left = append(s.left, c.Step)
				return nil
			}
		}
	}
	return s.ownMomentum.Apply(c, mean)
}

// With NotFinite a gradient that is infinite at one peer reaches the Updaters of all, which leave out the same step, also if a
// member dies before any of its messages. Without it the job ends.
func TestGradientsThatAreNotFinite(t *testing.T) {
	for k := int64(-1); k < 40; k += pick[int64](7, 2) {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(3, churning(6, false))
			all := make(map[*actor]*scaler)
			a.updated(func(x *actor, o *ownMomentum) {
				if x.self.Index == 1 {
					x.killAt.Store(k)
				}
				before := x.trained
				all[x] = &scaler{ownMomentum: o}
				x.trained = modelOf(func() trainer.Model {
					m := before.Model()
					m.Updater, m.NotFinite = all[x], k >= 0
					gradient := m.Gradient
					m.Gradient = func(b *trainer.Batch) (float64, error) {
						if b.Step() == 3 && x.self.Index == 0 {
							b.Grad(1)[0] = float32(math.Inf(1))
						}
						return gradient(b)
					}
					return m
				})
			})
			a.play(t)
			if k < 0 {
				for _, x := range a.actors {
					if !errors.Is(x.err, trainer.ErrNotFinite) {
						t.Errorf("error %v, want ErrNotFinite", x.err)
					}
				}
				return
			}
			a.check(t, fmt.Sprintf("killed at message %d", k))
			for x, s := range all {
				if !x.killed.Load() && (!slices.Equal(s.left, []int64{3}) || len(s.commits) != 5) {
					t.Errorf("killed at message %d: steps %v left out, %d applied", k, s.left, len(s.commits))
				}
			}
		})
	}
}

// Settings that need an optimizer of package optim are refused together with an Updater, and so is memory that does not fit.
func TestUpdaterRefused(t *testing.T) {
	for want, change := range map[string]func(m *trainer.Model, c *trainer.Config){
		"leave Optimizer":      func(m *trainer.Model, c *trainer.Config) { c.Optimizer = optim.SGD{} },
		"Waits or":             func(m *trainer.Model, c *trainer.Config) { m.Waits = true },
		"Gradients.Delay":      func(m *trainer.Model, c *trainer.Config) { c.Gradients.Delay = true },
		"clip the mean":        func(m *trainer.Model, c *trainer.Config) { c.Gradients.Clip = 1 },
		"without an Updater":   func(m *trainer.Model, c *trainer.Config) { m.Updater, m.NotFinite = nil, true },
		"NotFinite is set":     func(m *trainer.Model, c *trainer.Config) { c.Gradients.Exact, m.NotFinite = true, true },
		"Exact or Compression": func(m *trainer.Model, c *trainer.Config) { c.Gradients.Compression, m.NotFinite = "int8", true },
		"Gradients.Audit":      func(m *trainer.Model, c *trainer.Config) { c.Gradients.Exact, c.Gradients.Audit = true, 0.1 },
		"Config.Growth":        func(m *trainer.Model, c *trainer.Config) { c.Growth.Max = 80 },
		"3 vectors for 4":      func(m *trainer.Model, c *trainer.Config) { m.Grads = m.Grads[:3] },
		"elements for":         func(m *trainer.Model, c *trainer.Config) { m.Grads[2] = m.Grads[2][:0] },
		"does not begin where": func(m *trainer.Model, c *trainer.Config) { m.Grads[1] = make([]float32, len(m.Grads[1])) },
		"room for":             func(m *trainer.Model, c *trainer.Config) { m.Grads[0] = m.Grads[0][:len(m.Grads[0]):len(m.Grads[0])] },
	} {
		runGroups(t, 1, nil, func(ctx context.Context, g *elastic.Group) error {
			s, cfg := newSlope(), churning(3, false)
			m := s.Model()
			flat := make([]float32, 64)
			for _, p := range m.Params {
				m.Grads, flat = append(m.Grads, flat[:len(p.Data)]), flat[len(p.Data):]
			}
			m.Updater, cfg.Optimizer, cfg.Schedule = &ownMomentum{}, nil, nil
			change(&m, &cfg)
			if err := trainer.Run(ctx, g, m, cfg); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
			return nil
		})
	}
}
