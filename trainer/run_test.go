package trainer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/optim"
	"go.uber.org/goleak"
)

// counter is a model whose gradients are small integers that depend on the sample and the element. So float32 sums are exact in
// any order, and the weights after any run have a closed form.
type counter struct {
	params []trainer.Param
	seen   []int                                       // samples in the order of their calls
	hook   func(grad [][]float32, samples []int) error // called before done
}

func newCounter(sizes ...int) *counter {
	m := &counter{}
	for i, n := range sizes {
		m.params = append(m.params, trainer.Param{Name: fmt.Sprintf("p%d", i), Shape: []int{n}, Data: make([]float32, n)})
	}
	return m
}

func (c *counter) Params() []trainer.Param { return c.params }

func (c *counter) Model() trainer.Model { return trainer.ModelOf(c) }

// element returns d loss / d element j of parameter i for a sample.
func element(sample, i, j int) float32 { return float32((sample*31+i*17+j*7)%23 - 11) }

func (c *counter) Accumulate(grad [][]float32, samples []int, done func(int)) (float64, error) {
	c.seen = append(c.seen, samples...)
	loss := 0.0
	for _, s := range samples {
		loss += float64(s % 5)
		for i, g := range grad {
			for j := range g {
				g[j] += element(s, i, j)
			}
		}
	}
	if c.hook != nil {
		if err := c.hook(grad, samples); err != nil {
			return 0, err
		}
	}
	for i := len(grad) - 1; i >= 0; i-- {
		done(i)
	}
	return loss, nil
}

// log collects events of all members.
type log struct {
	mu     sync.Mutex
	events []event.Event
}

func (l *log) Emit(e event.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

// of returns the events of one type that member i emitted, in order.
func of[B event.Body](l *log, index int) []B {
	var out []B
	for _, e := range l.events {
		if b, ok := e.Body.(B); ok && e.Index == index {
			out = append(out, b)
		}
	}
	return out
}

func counting(passes int) trainer.Config {
	return trainer.Config{Samples: 100, GlobalBatch: 32, Microbatch: 5, Passes: passes, Seed: 9, Gradients: trainer.Gradients{BucketBytes: 24},
		Optimizer: optim.SGD{Momentum: 0.5}, Schedule: optim.Constant(0.25)}
}

// outcome is the result of a run at one rank.
type outcome struct {
	model  *counter
	steps  []trainer.StepReport
	result *trainer.Result
	err    error
}

// runGroups calls f for each of n members of a group, in virtual time. sink, if not nil, receives the events of all members.
func runGroups(t *testing.T, n int, sink event.Sink, f func(ctx context.Context, g *elastic.Group) error) {
	t.Helper()
	var sinks []event.Sink
	if sink != nil {
		sinks = append(sinks, sink)
	}
	synctest.Test(t, func(t *testing.T) { cluster.Start(t, n, simnet.New(simnet.Config{}), f, sinks...).Wait() })
}

// train runs cfg at n ranks. change may alter the model or the configuration of a rank.
func train(t *testing.T, n int, cfg trainer.Config, l *log, change func(rank int, m *counter, c *trainer.Config)) []outcome {
	t.Helper()
	out := make([]outcome, n)
	runGroups(t, n, l, func(ctx context.Context, g *elastic.Group) error {
		rank := g.Self().Index
		o := &out[rank]
		o.model = newCounter(3, 4, 1, 6)
		cfg := cfg
		cfg.Hooks.OnStep = func(r trainer.StepReport) { o.steps = append(o.steps, r) }
		cfg.Hooks.Done = func(r trainer.Result) { o.result = &r }
		if change != nil {
			change(rank, o.model, &cfg)
		}
		o.err = trainer.Run(ctx, g, o.model.Model(), cfg)
		return nil
	})
	return out
}

// replay is an independent implementation of a run: one process, without microbatches and buckets. It returns the weights.
func replay(passes int, passOf func(pass int) [][]int) [][]float32 {
	m := newCounter(3, 4, 1, 6)
	var weights, velocity [][]float32
	for _, p := range m.params {
		weights, velocity = append(weights, p.Data), append(velocity, make([]float32, len(p.Data)))
	}
	for pass := range passes {
		for _, step := range passOf(pass) {
			for i, w := range weights {
				for j := range w {
					sum := float32(0)
					for _, s := range step {
						sum += element(s, i, j)
					}
					mean := sum * float32(1/float64(len(step)))
					velocity[i][j] = 0.5*velocity[i][j] + mean
					w[j] -= 0.25 * velocity[i][j]
				}
			}
		}
	}
	return weights
}

// Any number of peers, even more than there are microbatches, reaches the weights of replay bit for bit. Every sample counts
// once per pass, and all reports agree.
func TestRunAtManySizes(t *testing.T) {
	defer goleak.VerifyNone(t)
	var steps [][]int // from the run with one rank, whose order of samples is known
	for _, n := range []int{1, 2, 3, 4, 9} {
		out := train(t, n, counting(2), &log{}, nil)
		if n == 1 {
			steps = cut(out[0].model.seen)
		}
		want := replay(2, func(pass int) [][]int { return steps[pass*4 : pass*4+4] })
		var seen []int
		for rank, o := range out {
			if o.err != nil {
				t.Fatalf("%d ranks: rank %d: %v", n, rank, o.err)
			}
			seen = append(seen, o.model.seen...)
			checkWeights(t, o.model, want)
			checkReports(t, n, o, out[0])
		}
		slices.Sort(seen)
		for i, s := range seen {
			if len(seen) != 200 || s != i/2 {
				t.Fatalf("%d ranks: %d samples computed, want each of 100 twice", n, len(seen))
			}
		}
	}
}

// cut divides the samples of two passes into steps of 32; the last step of a pass is short.
func cut(seen []int) [][]int {
	var steps [][]int
	for len(seen) > 0 {
		n := min(32, (len(seen)-1)%100+1)
		steps, seen = append(steps, seen[:n]), seen[n:]
	}
	return steps
}

func checkReports(t *testing.T, n int, o, first outcome) {
	t.Helper()
	if len(o.steps) != 8 || o.result == nil || *o.result != *first.result {
		t.Fatalf("%d ranks: %d steps, result %+v, rank 0 has %+v", n, len(o.steps), o.result, first.result)
	}
	if r := o.result; r.Steps != 8 || r.Peers != n || r.Score != nil || len(r.SHA256) != 64 {
		t.Errorf("%d ranks: result %+v", n, *r)
	}
	for i, s := range o.steps {
		f := first.steps[i]
		if s.Step != int64(i+1) || s.Of != 8 || s.Peers != n || s.Epoch != 1 || s.Samples != []int{32, 32, 32, 4}[i%4] {
			t.Errorf("%d ranks: report %d is %+v", n, i, s)
		}
		if s.Digest != f.Digest || s.Loss != f.Loss {
			t.Errorf("%d ranks: step %d has digest %s, loss %v; at rank 0 %s, %v", n, s.Step, s.Digest, s.Loss, f.Digest, f.Loss)
		}
	}
}

func TestEventsOfARun(t *testing.T) {
	l := &log{}
	out := train(t, 3, counting(1), l, func(_ int, _ *counter, c *trainer.Config) {
		c.Evaluate = func(_ context.Context, part, parts int) (trainer.Score, error) {
			return trainer.Score{Samples: 10 * (part + 1), Correct: 5 + part, Loss: float64(parts)}, nil
		}
	})
	for rank, o := range out {
		steps, done := of[event.Step](l, rank), of[event.Done](l, rank)
		if len(steps) != 4 || len(done) != 1 {
			t.Fatalf("rank %d emitted %d steps, %d done", rank, len(steps), len(done))
		}
		for i, s := range steps {
			if r := o.steps[i]; s.Digest != r.Digest || s.Loss != r.Loss || s.Of != 4 || s.ShareSamples != r.ShareSamples {
				t.Errorf("rank %d: event %+v, report %+v", rank, s, r)
			}
		}
		d := done[0]
		if d.Steps != 4 || d.Peers != 3 || *d.Accuracy != 18.0/60 || *d.Loss != 9.0/60 || d.SHA256 != o.result.SHA256 {
			t.Errorf("rank %d: done event %+v", rank, d)
		}
		if want := "done steps=4 peers=3 accuracy=0.3000 loss=0.15 sha256=" + d.SHA256; o.result.String() != want {
			t.Errorf("rank %d: last line %q, want %q", rank, o.result, want)
		}
		if *o.result.Score != (trainer.Score{Samples: 60, Correct: 18, Loss: 9}) {
			t.Errorf("rank %d: score %+v", rank, *o.result.Score)
		}
	}
	// The last step has one microbatch, which rank 0 computes. The log has empty lists for the other ranks.
	if a, b := of[event.Step](l, 0)[3].Microbatches, of[event.Step](l, 2)[3].Microbatches; !slices.Equal(a, [][2]int{{0, 1}}) || b == nil || len(b) != 0 {
		t.Errorf("microbatches of the last step: %v at rank 0, %v at rank 2", a, b)
	}
}

// The log says once what the job is, and rank 0 reports its score.
func TestEventsAboutAJob(t *testing.T) {
	l := &log{}
	train(t, 3, counting(1), l, func(_ int, _ *counter, c *trainer.Config) {
		c.Settings = []elastic.Setting{{Name: "net", Value: strings.Repeat("é", 200)}, {Name: "data", Value: "x", Text: "a file"}}
		c.Evaluate = func(_ context.Context, part, parts int) (trainer.Score, error) {
			<-time.After(time.Second)
			return trainer.Score{Samples: 10 * (part + 1), Correct: 5 + part, Loss: float64(parts)}, nil
		}
	})
	for rank := range 3 {
		jobs, evals := of[event.Job](l, rank), of[event.Eval](l, rank)
		if rank > 0 {
			if len(jobs)+len(evals) > 0 {
				t.Errorf("rank %d has emitted %+v and %+v", rank, jobs, evals)
			}
			continue
		}
		if len(evals) != 1 || evals[0].Samples != 60 || *evals[0].Accuracy != 18.0/60 || *evals[0].Loss != 9.0/60 || math.Abs(evals[0].MS-1000) > 10 {
			t.Errorf("evaluations %+v", evals)
		}
		if len(jobs) != 1 {
			t.Fatalf("%d descriptions of the job", len(jobs))
		}
		j := jobs[0]
		if s := j.Settings; s["net"] != strings.Repeat("é", 50) || s["seed"] != "9" || s["parameters"] != "4 of 14 elements" {
			t.Errorf("settings %q", s)
		}
		j.Settings = nil
		if want := (event.Job{Samples: 100, Steps: 4, Passes: 1, GlobalBatch: 32, Microbatch: 5, Params: 14}); !reflect.DeepEqual(j, want) {
			t.Errorf("the job is %+v, want %+v", j, want)
		}
	}
}

// expectAll checks that the error of every rank wraps is, unless is is nil, and contains all parts.
func expectAll(t *testing.T, out []outcome, is error, parts ...string) {
	t.Helper()
	for rank, o := range out {
		if o.err == nil || is != nil && !errors.Is(o.err, is) {
			t.Errorf("rank %d: error %v, want %v", rank, o.err, is)
			continue
		}
		for _, p := range parts {
			if !strings.Contains(o.err.Error(), p) {
				t.Errorf("rank %d: error %q lacks %q", rank, o.err, p)
			}
		}
		if o.result != nil {
			t.Errorf("rank %d reported a result", rank)
		}
	}
}

// A model that fails ends only the run of its own peer. The other peers compute that peer's part of the open step.
func TestModelErrorEndsItsPeer(t *testing.T) {
	defer goleak.VerifyNone(t)
	steps := cut(train(t, 1, counting(1), &log{}, nil)[0].model.seen)
	out := train(t, 3, counting(1), &log{}, func(rank int, m *counter, _ *trainer.Config) {
		if rank == 1 {
			m.hook = func(_ [][]float32, samples []int) error {
				if len(m.seen) > 20 {
					return errors.New("out of paper")
				}
				return nil
			}
		}
	})
	expectAll(t, out[1:2], nil, "out of paper", "after step 2 of 4", "microbatch")
	want := replay(1, func(int) [][]int { return steps })
	for _, o := range []outcome{out[0], out[2]} {
		if o.err != nil || o.result == nil || o.result.Peers != 2 || len(o.steps) != 4 {
			t.Errorf("a peer whose model is fine: %v, %+v", o.err, o.result)
		}
		checkWeights(t, o.model, want)
	}
}

// checkWeights checks that the weights equal the result of replay.
func checkWeights(t *testing.T, m *counter, want [][]float32) {
	t.Helper()
	for i, p := range m.params {
		if !slices.Equal(p.Data, want[i]) {
			t.Errorf("%s = %v, twin %v", p.Name, p.Data, want[i])
		}
	}
}

func TestNotFiniteIsNamed(t *testing.T) {
	nan := float32(math.NaN())
	out := train(t, 3, counting(1), &log{}, func(rank int, m *counter, _ *trainer.Config) {
		m.hook = func(grad [][]float32, _ []int) error {
			if rank == 2 && len(m.seen) > 10 {
				grad[1][2] = nan
			}
			return nil
		}
	})
	expectAll(t, out, trainer.ErrNotFinite, "gradient of p1 at rank 2 (member-2)", "step 2")
}

// All gradients are finite, but their sum is infinite.
func TestOverflowOfTheSumIsNamed(t *testing.T) {
	out := train(t, 3, counting(1), &log{}, func(_ int, m *counter, _ *trainer.Config) {
		m.hook = func(grad [][]float32, _ []int) error {
			grad[3][0] = math.MaxFloat32
			return nil
		}
	})
	expectAll(t, out, trainer.ErrNotFinite, "gradient of p3 summed over all peers")
}

// If a model declares no gradient complete, all gradients are complete when Gradient returns.
func TestReturningIsDone(t *testing.T) {
	for _, exactly := range []bool{false, true} {
		var sums []string
		for _, silent := range []bool{false, true} {
			runGroups(t, 2, nil, func(ctx context.Context, g *elastic.Group) error {
				m, cfg := newCounter(2, 2).Model(), counting(1)
				if gradient := m.Gradient; silent {
					m.Gradient = func(b *trainer.Batch) (float64, error) {
						return gradient(b.Wrap(func(g *trainer.Gate) { g.Done = nil }))
					}
				}
				cfg.Gradients.Exact = exactly
				if g.Self().Index == 0 {
					cfg.Hooks.Done = func(r trainer.Result) { sums = append(sums, r.SHA256) }
				}
				return trainer.Run(ctx, g, m, cfg)
			})
		}
		if len(sums) != 2 || sums[0] != sums[1] {
			t.Errorf("exact %t: weights %v", exactly, sums)
		}
	}
}

func TestFailedEvaluationReachesEveryRank(t *testing.T) {
	out := train(t, 3, counting(1), &log{}, func(rank int, _ *counter, c *trainer.Config) {
		c.Evaluate = func(context.Context, int, int) (trainer.Score, error) {
			if rank == 2 {
				return trainer.Score{}, errors.New("no test set")
			}
			return trainer.Score{Samples: 1}, nil
		}
	})
	expectAll(t, out[:2], nil, "evaluate: rank 2 (member-2) failed")
	expectAll(t, out[2:], nil, "no test set")
}

// The end of a context ends the run of one peer, and the others go on.
func TestCancelEndsOneRank(t *testing.T) {
	defer goleak.VerifyNone(t)
	why := errors.New("enough")
	for _, who := range []int{0, 2} {
		runGroups(t, 3, nil, func(ctx context.Context, g *elastic.Group) error {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			cfg := counting(10)
			cfg.Hooks.OnStep = func(r trainer.StepReport) {
				if g.Self().Index == who && r.Step == 3 {
					cancel(why)
				}
			}
			err := trainer.Run(ctx, g, newCounter(3, 4).Model(), cfg)
			if (g.Self().Index == who) != errors.Is(err, why) || g.Self().Index != who && err != nil {
				t.Errorf("rank %d: error %v", g.Self().Index, err)
			}
			return nil
		})
	}
}

func TestClipLimitsTheStep(t *testing.T) {
	runGroups(t, 2, nil, func(ctx context.Context, g *elastic.Group) error {
		cfg := counting(0)
		cfg.Steps, cfg.Gradients.Clip, cfg.Optimizer = 1, 0.5, optim.SGD{}
		m := newCounter(30)
		if err := trainer.Run(ctx, g, m.Model(), cfg); err != nil {
			return err
		}
		if norm := optim.Norm([][]float32{m.params[0].Data}); math.Abs(norm-0.5*0.25) > 1e-6 {
			t.Errorf("weights moved by %v, want the limit 0.5 times the rate 0.25", norm)
		}
		return nil
	})
}

func TestBadConfigurations(t *testing.T) {
	tests := map[string]func(c *trainer.Config){
		"Samples is 0":              func(c *trainer.Config) { c.Samples = 0 },
		"GlobalBatch is -1":         func(c *trainer.Config) { c.GlobalBatch = -1 },
		"Microbatch is -2":          func(c *trainer.Config) { c.Microbatch = -2 },
		"Passes is 0 and Steps 0":   func(c *trainer.Config) { c.Passes = 0 },
		"Passes is 1 and Steps 5":   func(c *trainer.Config) { c.Steps = 5 },
		"Passes is 1 and Steps -5":  func(c *trainer.Config) { c.Steps = -5 },
		"Optimizer or Schedule":     func(c *trainer.Config) { c.Optimizer = nil },
		"Gradients.Clip is NaN":     func(c *trainer.Config) { c.Gradients.Clip = math.NaN() },
		"Balancing.MaxShare is -1":  func(c *trainer.Config) { c.Balancing.MaxShare = -1 },
		"EverySteps -1":             func(c *trainer.Config) { c.Checkpoint.EverySteps = -1 },
		"an interval but no folder": func(c *trainer.Config) { c.Checkpoint.EverySteps = 1 },
		"microbatches in a step": func(c *trainer.Config) {
			c.Gradients.Exact, c.Samples, c.GlobalBatch, c.Microbatch = true, 1<<17, 1<<17, 1
		},
		"Gradients.BucketBytes is -1":                   func(c *trainer.Config) { c.Gradients.BucketBytes = -1 },
		"momentum is 2, want 0 or more and less than 1": func(c *trainer.Config) { c.Optimizer = optim.SGD{Momentum: 2} },
		"learning rate NaN":                             func(c *trainer.Config) { c.Schedule = optim.Constant(math.NaN()) },
	}
	for want, change := range tests {
		out := train(t, 1, counting(1), &log{}, func(_ int, _ *counter, c *trainer.Config) { change(c) })
		expectAll(t, out, nil, want)
	}
}

func TestBadModels(t *testing.T) {
	tests := map[string][]trainer.Param{
		"no parameters":                    {},
		"has 3 elements and the shape [2]": {{Name: "w", Shape: []int{2}, Data: make([]float32, 3)}},
		"has 0 elements and the shape [0]": {{Name: "w", Shape: []int{0}}},
	}
	for want, params := range tests {
		runGroups(t, 1, nil, func(ctx context.Context, g *elastic.Group) error {
			err := trainer.Run(ctx, g, trainer.ModelOf(&counter{params: params}), counting(1))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
			return nil
		})
	}
}
