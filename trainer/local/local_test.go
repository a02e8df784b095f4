package local_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/local"
	"github.com/elrun/elrun/trainer/optim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bowl is a model whose loss is the squared distance to a target. Each sample has its own target, so the gradients depend on the
// parameters.
type bowl struct {
	params []trainer.Param
	seen   [][]int // samples of each call
}

func newBowl() *bowl {
	m := new(bowl)
	for i, n := range []int{3, 4, 1, 6} {
		m.params = append(m.params, trainer.Param{Name: fmt.Sprintf("p%d", i), Shape: []int{n}, Data: make([]float32, n)})
	}
	return m
}

func (b *bowl) model() trainer.Model { return trainer.Model{Params: b.params, Gradient: b.gradient} }

func (m *bowl) gradient(b *trainer.Batch) (loss float64, err error) {
	m.seen = append(m.seen, slices.Clone(b.Samples()))
	for _, s := range b.Samples() {
		for i, p := range m.params {
			for j, v := range p.Data {
				d := float64(v) - target(s, i, j)
				b.Grad(i)[j] += float32(d)
				loss += d * d / 2
			}
		}
	}
	for i := range m.params {
		b.Done(i, 0)
	}
	return loss, nil
}

// target returns the target of sample s for an element.
func target(s, i, j int) float64 { return math.Sin(float64(s*31 + i*17 + j*7)) }

// ordinary returns a configuration with 8 microbatches a step. A pass has 97 samples in steps of 40, 40 and 17, so its last step
// has fewer microbatches.
func ordinary(passes int) trainer.Config {
	return trainer.Config{Samples: 97, GlobalBatch: 40, Microbatch: 5, Passes: passes, Seed: 4, Gradients: trainer.Gradients{BucketBytes: 24},
		Balancing: trainer.Balancing{Admit: trainer.AdmitAlways},
		Optimizer: optim.SGD{Momentum: 0.5}, Schedule: optim.Cosine(0.2, 0.01, 12)}
}

// wrapped calls local.Wrap and fails the test on an error.
func wrapped(t *testing.T, m trainer.Model, cfg trainer.Config, c local.Config) (trainer.Model, trainer.Config) {
	t.Helper()
	m, cfg, err := local.Wrap(m, cfg, c)
	if err != nil {
		t.Fatal(err)
	}
	return m, cfg
}

// twin is a reference implementation of local steps as in the papers, in float64. Its batches are the samples of a round's paths.
// The inner momentum is 0.5; the outer momentum is 0.9, as defined by Nesterov.
type twin struct {
	params, outer map[[2]int]float64 // by parameter and element
	// late is the mean of the previous round, which is applied in the next round. It is nil without a delay, and before the first
	// round.
	late  map[[2]int]float64
	delay bool
}

func newTwin(params []trainer.Param, delay bool) *twin {
	w := &twin{params: map[[2]int]float64{}, outer: map[[2]int]float64{}, delay: delay}
	for i, p := range params {
		for j := range p.Data {
			w.params[[2]int{i, j}] = 0
		}
	}
	return w
}

// round computes the paths of a round, each from the same parameters, and then makes the outer step. before is the number of
// earlier ordinary steps, and last is the number of the ordinary step with which the pass of the round ends.
func (t *twin) round(paths [][][]int, before, last int, clip float64) {
	moved, samples := map[[2]int]float64{}, 0
	for _, path := range paths {
		at, velocity, n := map[[2]int]float64{}, map[[2]int]float64{}, 0
		for e, v := range t.params {
			at[e] = v
		}
		for k, batch := range path {
			n += len(batch)
			grad, square := map[[2]int]float64{}, 0.0
			for e := range at {
				for _, s := range batch {
					grad[e] += (at[e] - target(s, e[0], e[1])) / float64(len(batch))
				}
				square += grad[e] * grad[e]
			}
			shorter := 1.0
			if norm := math.Sqrt(square); clip > 0 && norm > clip {
				shorter = clip / norm
			}
			for e := range at {
				velocity[e] = 0.5*velocity[e] + shorter*grad[e]
				at[e] -= optim.Cosine(0.2, 0.01, 12)(int64(min(before+k+1, last))) * velocity[e]
			}
		}
		samples += n
		for e := range at {
			moved[e] += float64(n) * (t.params[e] - at[e])
		}
	}
	for e := range moved {
		moved[e] /= float64(samples)
	}
	if t.delay {
		moved, t.late = t.late, moved
	}
	t.apply(moved)
}

// apply makes the outer step with a mean. If the mean is nil, it does nothing.
func (t *twin) apply(mean map[[2]int]float64) {
	for e, g := range mean {
		t.outer[e] = 0.9*t.outer[e] + g
		t.params[e] -= 0.7 * (g + 0.9*t.outer[e])
	}
}

// Peers compute the same parameters as the reference implementation. 12 ordinary steps with 40, 40 and 17 samples in turn make 8
// rounds. The weight of a path is its number of samples.
func TestLocalStepsAreThoseOfTheTwin(t *testing.T) {
	for _, c := range []struct {
		clip  float64
		delay bool
	}{{0, false}, {0.3, false}, {0, true}} {
		var models []*bowl
		train(t, 1, func(t *testing.T) (trainer.Model, trainer.Config) {
			m := newBowl()
			models = append(models, m)
			cfg := ordinary(4)
			cfg.Gradients.Clip = c.clip
			return wrapped(t, m.model(), cfg, local.Config{Steps: 2, Outer: optim.SGD{Momentum: 0.9, Nesterov: true}, Rate: optim.Constant(0.7), Delay: c.delay})
		})
		m := models[0]
		w, rest := newTwin(m.params, c.delay), m.seen
		for pass := range 4 {
			// 17 samples make 2 paths of 2 steps, whose last step has 2 samples. They do not make 4 paths of 1 step.
			whole, short := pathsOf(rest[:16]), pathsOf(rest[16:20])
			rest = rest[20:]
			w.round(whole, 3*pass, 3*pass+3, c.clip)
			w.round(short, 3*pass+2, 3*pass+3, c.clip)
			checkPass(t, append(whole, short...))
		}
		if len(rest) != 0 {
			t.Errorf("%d calls were not expected", len(rest))
		}
		w.apply(w.late)
		for i, p := range m.params {
			for j, v := range p.Data {
				if want := w.params[[2]int{i, j}]; math.Abs(float64(v)-want) > 1e-4 {
					t.Errorf("%+v: element %d of parameter %d is %v, want %v", c, j, i, v, want)
				}
			}
		}
	}
}

// pathsOf groups calls into paths of two local steps.
func pathsOf(calls [][]int) (paths [][][]int) {
	for path := range slices.Chunk(calls, 2) {
		paths = append(paths, path)
	}
	return paths
}

// checkPass checks that the paths have every sample once, and 5 samples in each local step except the last.
func checkPass(t *testing.T, paths [][][]int) {
	t.Helper()
	var all []int
	for _, batch := range slices.Concat(paths...) {
		if len(batch) != min(5, 97-len(all)) {
			t.Errorf("a local step has %d samples after %d", len(batch), len(all))
		}
		all = append(all, batch...)
	}
	slices.Sort(all)
	for i, s := range all {
		if i != s || len(all) != 97 {
			t.Fatalf("samples of a pass are %v", all)
		}
	}
}

// dots returns a model whose gradients are small integers and do not depend on the parameters, so that no sum is rounded.
func dots() trainer.Model {
	params := []trainer.Param{{Name: "a", Shape: []int{3}, Data: make([]float32, 3)}, {Name: "b", Shape: []int{5}, Data: make([]float32, 5)}}
	return trainer.Model{Params: params, Gradient: func(b *trainer.Batch) (float64, error) {
		for _, s := range b.Samples() {
			for i := range params {
				for j := range params[i].Data {
					b.Grad(i)[j] += float32((s*31+i*17+j*7)%23 - 11)
				}
			}
		}
		return 0, nil
	}}
}

// One local step with SGD and an outer rate of 1 gives the same result as ordinary training. Without rounding the weights are equal
// bit for bit.
func TestOneLocalStepIsOrdinaryTraining(t *testing.T) {
	cfg := trainer.Config{Samples: 80, GlobalBatch: 32, Microbatch: 4, Passes: 3, Optimizer: optim.SGD{}, Schedule: optim.Constant(0.25)}
	want := train(t, 1, func(*testing.T) (trainer.Model, trainer.Config) { return dots(), cfg })
	for _, n := range []int{1, 3} {
		got := train(t, n, func(t *testing.T) (trainer.Model, trainer.Config) {
			return wrapped(t, dots(), cfg, local.Config{Steps: 1})
		})
		if got.SHA256 != want.SHA256 || got.Steps != want.Steps {
			t.Errorf("%d peers: %v, ordinary training %v", n, got, want)
		}
	}
}

// A model that fails or panics in the middle of a path leaves the parameters unchanged.
func TestParametersAreBackAfterAFailure(t *testing.T) {
	boom := fmt.Errorf("boom: %w", trainer.ErrOutOfMemory)
	for _, fail := range []func() error{func() error { return boom }, func() error { panic(boom) }} {
		m := newBowl()
		calls := 0
		model := m.model()
		model.Gradient = func(b *trainer.Batch) (float64, error) {
			if calls++; calls == 3 {
				return 0, fail()
			}
			return m.gradient(b)
		}
		model, _ = wrapped(t, model, ordinary(1), local.Config{Steps: 4})
		grad := make([][]float32, len(m.params))
		for i, p := range m.params {
			grad[i] = make([]float32, len(p.Data))
			p.Data[0] = 5
		}
		err := func() (err error) {
			defer func() {
				if r := recover(); r != nil {
					err = r.(error)
				}
			}()
			_, err = model.Accumulate(grad, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, nil)
			return err
		}()
		if !errors.Is(err, trainer.ErrOutOfMemory) {
			t.Errorf("error %v, want the model's", err)
		}
		for i, p := range m.params {
			if p.Data[0] != 5 || slices.Max(p.Data) != 5 || len(p.Data) > 1 && slices.Min(p.Data) != 0 {
				t.Errorf("parameter %d is %v after the failure", i, p.Data)
			}
		}
	}
}

// A path ends as soon as Batch.Err returns an error, without another call of the model.
func TestAPathEndsEarly(t *testing.T) {
	m := newBowl()
	model, _ := wrapped(t, m.model(), ordinary(1), local.Config{Steps: 4})
	gone := errors.New("gone")
	batch := trainer.NewBatch([][]int{{0, 1, 2, 3, 4, 5, 6}}, trainer.Gate{
		Grad: func(i int) []float32 { return make([]float32, len(m.params[i].Data)) },
		Err: func() error {
			if len(m.seen) > 0 {
				return gone
			}
			return nil
		},
	})
	if _, err := model.Gradient(batch); !errors.Is(err, gone) || len(m.seen) != 1 {
		t.Errorf("error %v after %d local steps", err, len(m.seen))
	}
}

// Wrap keeps the fields that it does not replace.
func TestWrapKeepsTheRest(t *testing.T) {
	m := newBowl().model()
	m.Waits, m.Grouped, m.MaxSamples = true, true, 100
	m.Order = func(bool) []trainer.Piece { return nil }
	asked := 0
	m.Prefetch = func(context.Context, []int) { asked++ }
	cfg := ordinary(0)
	cfg.Steps, cfg.Gradients.Clip, cfg.Microbatch = 7, 2, 0
	cfg.Settings = []elastic.Setting{{Name: "--data"}}
	w, c := wrapped(t, m, cfg, local.Config{Steps: 2, Outer: optim.SGD{Momentum: 0.9}})
	w.Prefetch(t.Context(), nil)
	if asked != 1 || len(w.Params) != 4 {
		t.Errorf("%d calls of Prefetch, %d parameters", asked, len(w.Params))
	}
	if w.Waits || w.Grouped || w.MaxSamples != 0 || w.Order != nil {
		t.Errorf("the wrapped model has fields that a path cannot satisfy: %+v", w)
	}
	// 7 steps are 2 passes of 3 steps, with 2 rounds in each, and one more step.
	if c.GlobalBatch != 80 || c.Microbatch != 2*trainer.DefaultMicrobatch || c.Steps != 5 || c.Gradients.Clip != 0 || c.Schedule(9) != 1 ||
		c.Optimizer != (optim.SGD{Momentum: 0.9}) {
		t.Errorf("the configuration is %+v", c)
	}
	if cfg.GlobalBatch != 40 || len(cfg.Settings) != 1 {
		t.Errorf("Wrap has changed the caller's configuration: %+v", cfg)
	}
	w, c = wrapped(t, m, cfg, local.Config{Steps: 2, Delay: true})
	if !c.Gradients.Delay || w.MaxSamples != 80 || !w.Grouped || w.Whole || w.Waits {
		t.Errorf("with Delay the model is %+v and the configuration %+v", w, c)
	}
	w, c = wrapped(t, m, cfg, local.Config{Steps: 2, BySpeed: true})
	if c.Gradients.Delay || c.Microbatch != trainer.DefaultMicrobatch || c.GlobalBatch != 80 || !w.Whole || w.Grouped {
		t.Errorf("by speed the model is %+v and the configuration %+v", w, c)
	}
}

// If peers differ in a setting of local steps, they get an error that names the setting.
func TestOtherLocalStepsAreOtherSettings(t *testing.T) {
	of := func(change func(cfg *trainer.Config, c *local.Config)) string {
		cfg, c := ordinary(4), local.Config{Steps: 2}
		change(&cfg, &c)
		_, cfg = wrapped(t, newBowl().model(), cfg, c)
		return fmt.Sprint(cfg.Settings)
	}
	plain := of(func(*trainer.Config, *local.Config) {})
	for name, change := range map[string]func(cfg *trainer.Config, c *local.Config){
		"steps":     func(_ *trainer.Config, c *local.Config) { c.Steps = 3 },
		"optimizer": func(cfg *trainer.Config, _ *local.Config) { cfg.Optimizer = optim.Adam{} },
		"clip":      func(cfg *trainer.Config, _ *local.Config) { cfg.Gradients.Clip = 1 },
		"delay":     func(_ *trainer.Config, c *local.Config) { c.Delay = true },
		"share":     func(_ *trainer.Config, c *local.Config) { c.BySpeed = true },
		"schedule":  func(cfg *trainer.Config, _ *local.Config) { cfg.Schedule = optim.Warmup(2, cfg.Schedule) },
	} {
		if got := of(change); got == plain {
			t.Errorf("another %s has the same settings %s", name, got)
		}
	}
	if again := of(func(*trainer.Config, *local.Config) {}); again != plain {
		t.Errorf("settings %s and %s", plain, again)
	}
	// Peers and checkpoints compare these names and values.
	const sent = "[{local steps 2 } {local delay true } {local steps by speed false } " +
		"{local optimizer optim.SGD{Momentum:0.5 Nesterov:false WeightDecay:0}, clip 1.5 } " +
		"{local schedule a69b7f28d0eb968d 0.2, 0.1185, 0.01 at steps 1, 6, 12}]"
	if got := of(func(cfg *trainer.Config, c *local.Config) { cfg.Gradients.Clip, c.Delay = 1.5, true }); got != sent {
		t.Errorf("settings %s, want %s", got, sent)
	}
}

func TestWrapRefuses(t *testing.T) {
	for want, change := range map[string]func(m *trainer.Model, cfg *trainer.Config, c *local.Config){
		"set Model.Gradient":    func(m *trainer.Model, _ *trainer.Config, _ *local.Config) { m.Gradient = nil },
		"Steps is 0":            func(_ *trainer.Model, _ *trainer.Config, c *local.Config) { c.Steps = 0 },
		"too many":              func(_ *trainer.Model, _ *trainer.Config, c *local.Config) { c.Steps = math.MaxInt / 39 },
		"GlobalBatch 0":         func(_ *trainer.Model, cfg *trainer.Config, _ *local.Config) { cfg.GlobalBatch = 0 },
		"Samples is -1":         func(_ *trainer.Model, cfg *trainer.Config, _ *local.Config) { cfg.Samples = -1 },
		"Microbatch -5":         func(_ *trainer.Model, cfg *trainer.Config, _ *local.Config) { cfg.Microbatch = -5 },
		"is nil: set both":      func(_ *trainer.Model, cfg *trainer.Config, _ *local.Config) { cfg.Optimizer = nil },
		"Schedule of the local": func(_ *trainer.Model, cfg *trainer.Config, _ *local.Config) { cfg.Schedule = nil },
		"BySpeed and Gradients.Exact are both set": func(_ *trainer.Model, cfg *trainer.Config, c *local.Config) {
			cfg.Gradients.Exact, c.BySpeed = true, true
		},
		"choose another": func(_ *trainer.Model, cfg *trainer.Config, c *local.Config) {
			cfg.Balancing.Policy, c.BySpeed = "equal", true
		},
		"set local.Config.Delay": func(_ *trainer.Model, cfg *trainer.Config, _ *local.Config) { cfg.Gradients.Delay = true },
		"Clip is NaN":            func(_ *trainer.Model, cfg *trainer.Config, _ *local.Config) { cfg.Gradients.Clip = math.NaN() },
		"local steps: optim":     func(_ *trainer.Model, cfg *trainer.Config, _ *local.Config) { cfg.Optimizer = optim.SGD{Momentum: 2} },
		"Outer: optim":           func(_ *trainer.Model, _ *trainer.Config, c *local.Config) { c.Outer = optim.SGD{Nesterov: true} },
	} {
		m, cfg, c := newBowl().model(), ordinary(1), local.Config{Steps: 2}
		change(&m, &cfg, &c)
		if _, _, err := local.Wrap(m, cfg, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// Some errors are found only within a path. They also end the job.
func TestPathsThatFail(t *testing.T) {
	m, cfg := newBowl(), ordinary(1)
	grad := [][]float32{make([]float32, 3), make([]float32, 4), make([]float32, 1), make([]float32, 6)}
	cfg.Schedule = optim.Constant(math.Inf(1))
	model, _ := wrapped(t, m.model(), cfg, local.Config{Steps: 2})
	if _, err := model.Accumulate(grad, []int{1}, nil); !errors.Is(err, trainer.ErrNotFinite) {
		t.Errorf("error %v, want ErrNotFinite", err)
	}
}

// counted is SGD that records the step number of each update.
type counted struct {
	optim.SGD
	steps *[]int64
}

func (c counted) Update(step int64, rate float64, param, grad []float32, state [][]float32) {
	*c.steps = append(*c.steps, step)
	c.SGD.Update(step, rate, param, grad, state)
}

// Adam's bias correction depends on the step number. Therefore step numbers begin at 1 in each path.
func TestInnerStepsCountFromOne(t *testing.T) {
	m, cfg := newBowl(), ordinary(1)
	m.params = m.params[:1]
	var steps []int64
	cfg.Optimizer = counted{optim.SGD{}, &steps}
	model, _ := wrapped(t, m.model(), cfg, local.Config{Steps: 3})
	for range 2 {
		if _, err := model.Accumulate([][]float32{make([]float32, 3)}, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int64{1, 2, 3, 1, 2, 3}; !slices.Equal(steps, want) {
		t.Errorf("steps of the inner optimizer are %v, want %v", steps, want)
	}
}
