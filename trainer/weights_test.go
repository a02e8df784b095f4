package trainer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer"
)

// tokens returns the number of tokens of a sample of a weighed model; some samples have none.
func tokens(sample int) int { return sample * sample % 11 }

// weighed is what a model whose loss is a mean over tokens does.
type weighed struct {
	weight func(samples []int) float64 // of a call
	skips  func(step int64) bool       // steps in which all calls have the weight 0
	// calls has the samples of each call, by step.
	calls map[int64][][]int
}

// byTokens returns a weighed that counts tokens, in a unit that is no integer, and leaves out step 3.
func byTokens() *weighed {
	return &weighed{weight: func(samples []int) (w float64) {
		for _, s := range samples {
			w += 0.1 * float64(tokens(s))
		}
		return w
	}, skips: func(step int64) bool { return step == 3 }, calls: make(map[int64][][]int)}
}

// of weighs the model of x: its gradient and loss are sums over tokens.
func (w *weighed) of(x *actor) {
	before, slope := x.trained, x.model
	x.trained = modelOf(func() trainer.Model {
		m := before.Model()
		m.Gradient = func(b *trainer.Batch) (float64, error) {
			w.calls[b.Step()] = append(w.calls[b.Step()], b.Samples())
			weight := w.weight(b.Samples())
			if w.skips(b.Step()) {
				weight = 0
			}
			b.Weight(weight)
			if weight == 0 {
				return math.NaN(), nil
			}
			loss := 0.0
			for _, s := range b.Samples() {
				of, err := slope.sum(b, s, float32(0.1*float64(tokens(s))))
				if err != nil {
					return 0, err
				}
				loss += of
			}
			return loss, nil
		}
		return m
	})
}

// sum adds the gradient of a sample times a factor, and returns its loss times the factor.
func (m *slope) sum(b *trainer.Batch, sample int, factor float32) (float64, error) {
	var grad [][]float32
	for _, p := range m.params {
		grad = append(grad, make([]float32, len(p.Data)))
	}
	loss, err := m.Accumulate(grad, []int{sample}, func(int) {})
	for i, g := range grad {
		to := b.Grad(i)
		for j, v := range g {
			to[j] += v * factor
		}
	}
	return loss * float64(factor), err
}

// twin trains as the peers of a weighed job do, sample by sample in float64, and returns the parameters and the loss of each step.
func (w *weighed) twin(steps int64) (params [][]float64, losses []float64) {
	var velocity [][]float64
	for _, p := range newSlope().params {
		params, velocity = append(params, make([]float64, len(p.Data))), append(velocity, make([]float64, len(p.Data)))
	}
	for step := int64(1); step <= steps; step++ {
		if w.skips(step) {
			losses = append(losses, 0)
			continue
		}
		total, loss := 0.0, 0.0
		sums := make(map[[2]int]float64)
		for _, call := range w.calls[step] {
			for _, s := range call {
				total += float64(tokens(s))
				for i, p := range params {
					for j, v := range p {
						d := v - math.Sin(float64(s*31+i*17+j*7))
						sums[[2]int{i, j}] += d * float64(tokens(s))
						loss += d * d * float64(tokens(s))
					}
				}
			}
		}
		losses = append(losses, loss/total)
		for i, p := range params {
			for j := range p {
				velocity[i][j] = 0.5*velocity[i][j] + sums[[2]int{i, j}]/total
				p[j] -= 0.25 * velocity[i][j]
			}
		}
	}
	return params, losses
}

// The mean gradient and the loss of a job with weights are those of a process that goes through all tokens, to the bit for any
// number of peers in exact mode, also if a member dies before one of its messages, and if a call or a whole step has the weight 0.
func TestWeights(t *testing.T) {
	t.Parallel()
	const steps = 6
	for _, exactly := range []bool{false, true} {
		cfg := churning(steps, exactly)
		solo := byTokens()
		var want string
		synctest.Test(t, func(t *testing.T) {
			a := newArena(1, cfg)
			a.adjust = solo.of
			a.play(t)
			want = a.check(t, "alone")
		})
		if exactly { // the first step is computed again, if its scale does not fit
			solo.calls[1] = solo.calls[1][len(solo.calls[1])-8:]
		}
		params, losses := solo.twin(steps)
		messages := int64(1 << 30)
		for k := int64(0); k <= messages; k += pick[int64](17, 5) {
			synctest.Test(t, func(t *testing.T) {
				about := fmt.Sprintf("exact %t: killed at message %d", exactly, k)
				a := newArena(3, cfg)
				a.adjust = func(x *actor) {
					byTokens().of(x)
					if x.self.Index == 1 {
						x.killAt.Store(k)
					}
				}
				if k%2 == 1 {
					a.updated(nil)
				}
				a.play(t)
				if sha := a.check(t, about); exactly && sha != want {
					t.Errorf("%s: weights %s, want %s", about, sha, want)
				}
				a.checkNear(t, about, params, losses)
				if !a.actors[1].killed.Load() && k > 0 {
					messages = 0
				}
			})
		}
	}
}

// checkNear compares the parameters and losses of the actors that have finished.
func (a *arena) checkNear(t *testing.T, about string, params [][]float64, losses []float64) {
	t.Helper()
	for _, x := range a.actors {
		if x.killed.Load() {
			continue
		}
		for i, p := range x.model.params {
			for j, v := range p.Data {
				if math.Abs(float64(v)-params[i][j]) > 1e-5 {
					t.Errorf("%s: element %d of parameter %d is %v, want %v", about, j, i, v, params[i][j])
				}
			}
		}
		for _, s := range x.steps {
			if math.Abs(s.Loss-losses[s.Step-1]) > 1e-5*(1+losses[s.Step-1]) {
				t.Errorf("%s: loss of step %d is %v, want %v", about, s.Step, s.Loss, losses[s.Step-1])
			}
		}
	}
}

// Some calls with a weight and some without end the job at all peers. A skipped call fits both.
func TestWeightsInSomeCalls(t *testing.T) {
	for want, weight := range map[string]func(index int, samples []int, b *trainer.Batch){
		"others have not": func(index int, samples []int, b *trainer.Batch) {
			if index == 1 {
				b.Weight(1)
			}
		},
		"others have not: call": func(_ int, samples []int, b *trainer.Batch) {
			if samples[0]%2 == 0 {
				b.Weight(1)
			}
		},
		"": func(index int, _ []int, b *trainer.Batch) {
			if index == 1 {
				b.Weight(0)
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(3, churning(3, true))
			a.adjust = func(x *actor) {
				before := x.trained
				x.trained = modelOf(func() trainer.Model {
					m := before.Model()
					gradient := m.Gradient
					m.Gradient = func(b *trainer.Batch) (float64, error) {
						weight(x.self.Index, b.Samples(), b)
						return gradient(b)
					}
					return m
				})
			}
			a.play(t)
			for _, x := range a.actors {
				if want == "" && x.err != nil || want != "" && (!errors.Is(x.err, trainer.ErrWeights) || !strings.Contains(x.err.Error(), want)) {
					t.Errorf("error %v, want %q", x.err, want)
				}
			}
		})
	}
}

// Weights that are no weights, and settings that have no room for weights, end the job with an error.
func TestWeightsRefused(t *testing.T) {
	one := func(b *trainer.Batch) { b.Weight(1) }
	for _, tt := range []struct {
		want   string
		weigh  func(b *trainer.Batch)
		change func(m *trainer.Model, c *trainer.Config)
	}{
		{"Weight(NaN)", func(b *trainer.Batch) { b.Weight(math.NaN()) }, nil},
		{"Weight(+Inf)", func(b *trainer.Batch) { b.Weight(math.Inf(1)) }, nil},
		{"Weight(-1)", func(b *trainer.Batch) { b.Weight(-1) }, nil},
		{"Weight(1e-09)", func(b *trainer.Batch) { b.Weight(1e-9) }, nil},
		{"Weight(1e+15)", func(b *trainer.Batch) { b.Weight(1e15) }, nil},
		{"Gradients.Delay", one, func(_ *trainer.Model, c *trainer.Config) { c.Gradients.Delay = true }},
		{"Model.Waits", one, func(m *trainer.Model, _ *trainer.Config) { m.Waits = true }},
		{"Gradients.Audit", one, func(_ *trainer.Model, c *trainer.Config) { c.Gradients.Exact, c.Gradients.Audit = true, 0.5 }},
		{"Config.Growth", one, func(_ *trainer.Model, c *trainer.Config) { c.Growth.Max = 80 }},
		{"GradScale is -1", func(*trainer.Batch) {}, func(m *trainer.Model, _ *trainer.Config) { m.GradScale = -1 }},
		{"GradScale is NaN", func(*trainer.Batch) {}, func(m *trainer.Model, _ *trainer.Config) { m.GradScale = math.NaN() }},
	} {
		runGroups(t, 1, nil, func(ctx context.Context, g *elastic.Group) error {
			s, cfg := newSlope(), churning(3, false)
			m := s.Model()
			gradient := m.Gradient
			m.Gradient = func(b *trainer.Batch) (float64, error) {
				tt.weigh(b)
				for i := range m.Params {
					b.Wait(i, 0)
				}
				return gradient(b)
			}
			if tt.change != nil {
				tt.change(&m, &cfg)
			}
			if err := trainer.Run(ctx, g, m, cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			return nil
		})
	}
}

// A model that scales its gradients by a power of two, or gives all samples the same weight, trains as it does without: to the bit in
// plain mode, and with the same noise. In exact mode the first scale of the integers is another one.
func TestGradScale(t *testing.T) {
	for _, exactly := range []bool{false, true} {
		cfg := churning(6, exactly)
		var first []trainer.StepReport
		want := ""
		for _, tt := range []struct{ scale, weight float64 }{{1, 0}, {1.0 / 64, 0}, {4, 0}, {1, 8}, {0.5, 2}} {
			synctest.Test(t, func(t *testing.T) {
				a := newArena(3, cfg)
				a.adjust = func(x *actor) {
					before := x.trained
					x.model.scale = float32(tt.scale * max(1, tt.weight))
					x.trained = modelOf(func() trainer.Model {
						m := before.Model()
						m.GradScale = tt.scale
						gradient := m.Gradient
						m.Gradient = func(b *trainer.Batch) (float64, error) {
							loss, err := gradient(b)
							if tt.weight > 0 {
								b.Weight(tt.weight * float64(len(b.Samples())))
								loss *= tt.weight
							}
							return loss, err
						}
						return m
					})
				}
				a.play(t)
				about := fmt.Sprintf("exact %t, %+v", exactly, tt)
				sha, steps := a.check(t, about), a.actors[0].steps
				if first == nil {
					first, want = steps, sha
				}
				if sha != want && !exactly {
					t.Errorf("%s: weights %s, want %s", about, sha, want)
				}
				near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-4*math.Abs(b) }
				for i, s := range steps {
					if f := first[i]; !near(s.GradNorm, f.GradNorm) || !near(s.NoiseScale, f.NoiseScale) || !near(s.Loss, f.Loss) || s.GradNorm == 0 {
						t.Errorf("%s: step %d has %v, %v, %v, want %v, %v, %v", about, s.Step, s.GradNorm, s.NoiseScale, s.Loss, f.GradNorm, f.NoiseScale, f.Loss)
					}
				}
			})
		}
	}
}
