package trainer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/optim"
)

// growing is the configuration of a job whose batch grows from 20 to 90 of 203 samples, also within passes. The noise scale decides
// when, and not only Growth.Every. The rate falls in each step.
func growing(exactly bool) trainer.Config {
	cfg := churning(0, exactly)
	cfg.Samples, cfg.GlobalBatch, cfg.Microbatch, cfg.Passes, cfg.Seed = 203, 20, 6, 4, 1
	cfg.Growth = trainer.Growth{Max: 90, Efficiency: 0.9, Every: 2}
	cfg.Schedule = optim.Cosine(0.02, 0.01, cfg.TotalSteps())
	return cfg
}

// growths returns the first step of each batch after the first one, as the log has it, and the batches.
func (a *arena) growths() (steps []int64, batches []int) {
	for _, e := range a.events.events {
		if g, ok := e.Body.(event.Growth); ok {
			steps, batches = append(steps, e.Step), append(batches, g.New)
		}
	}
	return steps, batches
}

// grown plays a job of one peer, and returns its weights and the steps at which the batch grows.
func grown(t *testing.T, cfg trainer.Config) (sha string, at []int64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := newArena(1, cfg)
		a.play(t)
		sha = a.check(t, "alone")
		at, _ = a.growths()
	})
	return sha, at
}

// The batch grows, each pass has each sample once, and all reports agree.
func TestGrowingBatch(t *testing.T) {
	for _, exactly := range []bool{false, true} {
		cfg := growing(exactly)
		synctest.Test(t, func(t *testing.T) {
			a := newArena(1, cfg)
			var seen []int
			a.adjust = func(x *actor) {
				x.trained = seeing{x.model, func(part []int) { seen = append(seen, part...) }}
			}
			a.play(t)
			a.check(t, "growing")
			steps, batches := a.growths()
			if !slices.Equal(batches, []int{40, 80, 90}) {
				t.Fatalf("the batches are %d from the steps %d on", batches, steps)
			}
			if exactly { // the first attempt at the first step does not fit
				seen = seen[len(seen)-4*203:]
			}
			for pass := range slices.Chunk(seen, 203) {
				if slices.Sort(pass); len(pass) != 203 || pass[0] != 0 || len(slices.Compact(pass)) != 203 {
					t.Error("a pass has not each sample once")
				}
			}
			reports, batch := a.actors[0].steps, 20
			for i, s := range reports {
				if k := slices.Index(steps, s.Step); k >= 0 {
					batch = batches[k]
				}
				if s.Samples > batch || i+1 < len(reports) && s.Of < reports[i+1].Of {
					t.Errorf("step %d of %d has %d samples, the batch is %d", s.Step, s.Of, s.Samples, batch)
				}
			}
			if last := reports[len(reports)-1]; last.Of != last.Step || last.Of >= cfg.TotalSteps() || last.Of != a.actors[0].result.Steps {
				t.Errorf("the last report is of step %d of %d", last.Step, last.Of)
			}
		})
	}
}

// In exact mode the batch grows at the same steps, and the weights have the same bits, for any number of peers, also with Delay, and
// when calls have several microbatches.
func TestGrowthDoesNotDependOnThePeers(t *testing.T) {
	for name, change := range map[string]func(c *trainer.Config){
		"linear":   func(*trainer.Config) {},
		"adascale": func(c *trainer.Config) { c.Growth.Rate = trainer.GrowAdaScale },
		"clip":     func(c *trainer.Config) { c.Gradients.Clip = 0.5 },
		"audit":    func(c *trainer.Config) { c.Gradients.Audit = 0.5 },
	} {
		for _, delay := range []bool{false, true} {
			cfg := growing(true)
			change(&cfg)
			cfg.Gradients.Delay = delay
			want, at := grown(t, cfg)
			if len(at) != 3 {
				t.Fatalf("%s, delay %t: the batch grows at %d", name, delay, at)
			}
			for _, n := range []int{2, 4} {
				synctest.Test(t, func(t *testing.T) {
					about := fmt.Sprintf("%s, delay %t, %d peers", name, delay, n)
					a := newArena(n, cfg)
					a.adjust = func(x *actor) { x.model.pace *= time.Duration(1 + x.self.Index) }
					a.play(t)
					if sha := a.check(t, about); sha != want {
						t.Errorf("%s: weights %s, want %s", about, sha, want)
					}
					if got, _ := a.growths(); !slices.Equal(got, at) {
						t.Errorf("%s: the batch grows at %d, want %d", about, got, at)
					}
				})
			}
		}
	}
}

// Without exact mode all peers grow alike, also if a step begins before the one before it has ended.
func TestGrowthWithoutExactMode(t *testing.T) {
	for name, change := range map[string]func(c *trainer.Config){
		"plain": func(*trainer.Config) {},
		"delay": func(c *trainer.Config) { c.Gradients.Delay = true },
		"coded": func(c *trainer.Config) { c.Gradients.Compression = "fp16" },
		"root":  func(c *trainer.Config) { c.Growth.Rate = trainer.GrowRoot },
		"steps": func(c *trainer.Config) { c.Passes, c.Steps = 0, 37 },
	} {
		for _, n := range []int{1, 3} {
			synctest.Test(t, func(t *testing.T) {
				cfg := growing(false)
				change(&cfg)
				a := newArena(n, cfg)
				a.play(t)
				a.check(t, fmt.Sprint(name, " ", n))
				if at, _ := a.growths(); len(at) != 3 {
					t.Errorf("%s, %d peers: the batch grows at %d", name, n, at)
				}
			})
		}
	}
}

// A step that begins before the end of the previous step has its batch and its samples, also where the batch grows.
func TestStepsThatBeginEarlyHaveTheirBatch(t *testing.T) {
	cfg := dyadic(40)
	cfg.Samples = 256
	cfg.Growth = trainer.Growth{Max: 128, Efficiency: 0.01, Every: 3} // whatever the noise
	want := oneAlone(t, cfg)
	for _, delay := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			here := cfg
			here.Gradients.Delay = delay
			a := newArena(3, here)
			models := a.eagerly(t, nil)
			a.play(t)
			if sha := a.check(t, "early"); sha != want {
				t.Errorf("delay %t: weights %s, want %s", delay, sha, want)
			}
			at, batches := a.growths()
			if !slices.Equal(batches, []int{64, 128}) {
				t.Fatalf("delay %t: the batches are %d from the steps %d on", delay, batches, at)
			}
			for i, m := range models() {
				p, r, n := int64(m.passes.Load()), int64(m.resumed.Load()), a.actors[i].result.Steps-1
				least := n
				if !delay { // the share in a larger batch is known only after the commit
					least -= int64(len(at))
				}
				if p != n || r < least {
					t.Errorf("delay %t, peer %d: %d calls before their step, %d of use, want %d and %d", delay, i, p, r, n, least)
				}
			}
		})
	}
}

// In exact mode it makes no difference who steals the first microbatch of a step, from which the noise is measured.
func TestGrowthWithStealing(t *testing.T) {
	cfg := growing(true)
	want, at := grown(t, cfg)
	synctest.Test(t, func(t *testing.T) {
		a := hosted(cfg, 9, 3, 1)
		a.play(t)
		if sha := a.check(t, "stealing"); sha != want {
			t.Errorf("weights %s, want %s", sha, want)
		}
		if got, _ := a.growths(); !slices.Equal(got, at) {
			t.Errorf("the batch grows at %d, want %d", got, at)
		}
	})
}

// A member dies before one of the messages that it sends around each growth, and another peer joins at that time.
func TestKillsAndJoinsAtGrowth(t *testing.T) {
	t.Parallel()
	for _, exactly := range []bool{false, true} {
		cfg := growing(exactly)
		want, at := grown(t, cfg)
		for _, step := range at {
			for k := int64(0); k < 100; k += pick[int64](9, 2) {
				synctest.Test(t, func(t *testing.T) {
					about := fmt.Sprintf("exact %t: killed %d messages after step %d, and a join", exactly, k, step-3)
					a := newArena(3, cfg)
					victim := int(k+step) % 3
					var begun atomic.Bool
					a.adjust = func(x *actor) {
						x.model.pace = 20 * time.Millisecond
						x.cfg.Hooks.OnBegin = func(s int64) {
							if s == step-3 && k%2 == 0 && begun.CompareAndSwap(false, true) {
								a.start(elastic.Member{ID: "newcomer", Index: 3}, nil)
							}
							if s == step-3 && x.self.Index == victim && x.killAt.Load() == 0 {
								x.killAt.Store(x.sent.Load() + 1 + k)
							}
						}
					}
					a.play(t)
					if sha := a.check(t, about); exactly && sha != want {
						t.Errorf("%s: weights %s, want %s", about, sha, want)
					}
				})
			}
		}
	}
}

// A job that ends around a growth and resumes with any number of peers reaches the weights of an uninterrupted job.
func TestResumeAtGrowth(t *testing.T) {
	cfg := growing(true)
	want, at := grown(t, cfg)
	dir := filepath.Join(t.TempDir(), "checkpoints")
	synctest.Test(t, func(t *testing.T) {
		saving := cfg
		saving.Checkpoint = trainer.Checkpoint{Dir: dir, EverySteps: 1, Keep: 1000}
		a := newArena(3, saving)
		a.adjust = func(x *actor) { x.model.pace = 100 * time.Millisecond }
		a.play(t)
		a.check(t, "saving")
	})
	tried := 0
	for _, growth := range at {
		for step := growth - 3; step <= growth+1; step++ {
			b, err := os.ReadFile(filepath.Join(dir, stepFile(int(step))))
			if err != nil {
				continue // the disk was busy in that step
			}
			from := t.TempDir()
			if err := os.WriteFile(filepath.Join(from, stepFile(int(step))), b, 0o600); err != nil {
				t.Fatal(err)
			}
			tried++
			synctest.Test(t, func(t *testing.T) {
				a := newArena(1+int(step)%3, cfg)
				a.adjust = func(x *actor) { x.cfg.Checkpoint.Resume = from }
				a.play(t)
				for _, x := range a.actors {
					if x.err != nil || x.result.SHA256 != want || x.steps[0].Step != step+1 {
						t.Errorf("resumed after step %d of a growth at %d: error %v, result %v", step, growth, x.err, x.result)
					}
				}
			})
		}
	}
	if tried < 10 {
		t.Errorf("only %d checkpoints around the growths at %d", tried, at)
	}
}

// A job does not resume from the checkpoint of a job with another growth.
func TestACheckpointOfAnotherGrowthIsRefused(t *testing.T) {
	fixed := growing(true)
	fixed.Growth = trainer.Growth{}
	other := growing(true)
	other.Growth.Max = 100
	for _, c := range []struct {
		from, to trainer.Config
		want     string
	}{
		{growing(true), fixed, `its growth is "to 90 samples, rate linear, efficiency 0.9, every 2 steps", the batch of this job does not grow`},
		{fixed, growing(true), `its growth is "", this job has "to 90 samples`},
		{other, growing(true), `its growth is "to 100 samples`},
	} {
		if x, _ := resumed(t, save(t, 1, c.from, 5), c.to); x.err == nil || !strings.Contains(x.err.Error(), c.want) {
			t.Errorf("error %v, want %q", x.err, c.want)
		}
	}
}

// A peer with another growth is refused, and does not disturb the others.
func TestOtherGrowthIsRefused(t *testing.T) {
	for max, want := range map[int]string{0: "growth", 80: "growth is to 90 samples"} {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(2, growing(false))
			a.adjust = func(x *actor) {
				x.model.pace = 10 * time.Millisecond
				switch x.self.Index {
				case 0:
					x.cfg.Hooks.OnBegin = func(step int64) {
						if step == 5 {
							a.start(elastic.Member{ID: "a-peer-with-another-growth", Index: 2}, nil)
						}
					}
				case 2:
					if x.cfg.Growth.Max = max; max == 0 {
						x.cfg.Growth = trainer.Growth{}
					}
				}
			}
			a.play(t)
			x := a.actors[2]
			if !errors.Is(x.err, elastic.ErrRefused) || !strings.Contains(x.err.Error(), want) {
				t.Errorf("error %v", x.err)
			}
			x.killed.Store(true) // the peer has no result
			a.check(t, "somebody is refused")
		})
	}
}

// Points of a training follow each pass, however many steps it has.
func TestPointsOfAGrowingBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := growing(false)
		a := newArena(2, cfg)
		var points [2][]int64
		a.adjust = func(x *actor) {
			x.train = func(ctx context.Context, g *elastic.Group, m trainer.Model) error {
				run := trainer.New(g, m, x.cfg)
				for p := range run.Points(ctx, trainer.EveryPass) {
					points[x.self.Index] = append(points[x.self.Index], p.Step)
				}
				return run.Err()
			}
		}
		a.play(t)
		a.check(t, "points")
		samples, want := 0, []int64(nil)
		for _, s := range a.actors[0].steps {
			if samples += s.Samples; samples%cfg.Samples == 0 {
				want = append(want, s.Step)
			}
		}
		if len(want) != 4 || !slices.Equal(points[0], want) || !slices.Equal(points[1], want) {
			t.Errorf("points at %d, want %d", points, want)
		}
	})
}
