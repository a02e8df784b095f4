package trainer_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/optim"
)

// careful returns a model with two parameters. It follows all rules of CheckModel. The gradient of sample s is the parameter times
// (s+1)/3.
func careful() trainer.Model {
	m := trainer.Model{Waits: true, MaxSamples: 10, Grouped: true}
	for i := range 2 {
		m.Params = append(m.Params, trainer.Param{Name: fmt.Sprint("p", i), Shape: []int{3}, Data: []float32{1, 2, float32(i)}})
	}
	m.Order = func(bool) []trainer.Piece { return []trainer.Piece{{Param: 1}, {Param: 0}} }
	m.Gradient = func(b *trainer.Batch) (float64, error) {
		var read [][]float32
		for i, p := range m.Params {
			b.Wait(i, 0)
			read = append(read, slices.Clone(p.Data))
		}
		for i := len(read) - 1; i >= 0; i-- {
			for _, g := range b.Groups() {
				addProducts(g, i, read[i])
			}
		}
		for _, g := range b.Groups() {
			g.Loss(float64(read[0][1]) * float64(len(g.Samples())))
		}
		return 0, b.Err()
	}
	return m
}

// addProducts adds the gradient of parameter i for a batch. read has the values of the parameter.
func addProducts(g *trainer.Batch, i int, read []float32) {
	grad := g.Grad(i)
	for _, s := range g.Samples() {
		for k, v := range read {
			grad[k] += v * float32(s+1) / 3
		}
	}
	g.Done(i, 0)
}

// around returns m with another Gradient, which calls change and passes the original Gradient to it.
func around(m trainer.Model, change func(b *trainer.Batch, gradient func(b *trainer.Batch) (float64, error)) (float64, error)) trainer.Model {
	gradient := m.Gradient
	m.Gradient = func(b *trainer.Batch) (float64, error) { return change(b, gradient) }
	return m
}

// with returns a careful model to which change was applied.
func with(change func(m *trainer.Model)) trainer.Model {
	m := careful()
	change(&m)
	return m
}

// gradient has the type of Model.Gradient.
type gradient = func(b *trainer.Batch) (float64, error)

// simpleMistakes returns models that break one rule each, keyed by a part of the expected error. The mistake is in a declaration of
// the model, or is added after a right call of Gradient.
func simpleMistakes() map[string]trainer.Model {
	losses, gradients := 0, 0
	on := func(change func(b *trainer.Batch, m trainer.Model)) trainer.Model {
		m := careful()
		return around(m, func(b *trainer.Batch, gradient gradient) (float64, error) {
			loss, err := gradient(b)
			change(b, m)
			return loss, err
		})
	}
	return map[string]trainer.Model{
		"set Model.Params":         with(func(m *trainer.Model) { m.Params = nil }),
		"set Model.Gradient":       with(func(m *trainer.Model) { m.Gradient = nil }),
		"MaxSamples is -1":         with(func(m *trainer.Model) { m.MaxSamples = -1 }),
		"loss 8, want 7 as before": on(func(b *trainer.Batch, _ trainer.Model) { losses++; b.Loss(float64(losses)) }),
		"other bits than before":   on(func(b *trainer.Batch, _ trainer.Model) { gradients++; b.Grad(1)[2] += float32(gradients) }),
		"whose loss is finite":     on(func(b *trainer.Batch, _ trainer.Model) { b.Loss(math.Inf(1)) }),
		"p1 has changed: Gradi":    on(func(_ *trainer.Batch, m trainer.Model) { m.Params[1].Data[0]++ }),
		"twice or out of order":    on(func(b *trainer.Batch, _ trainer.Model) { b.Done(1, 0) }),
		"p0 has changed after":     on(func(b *trainer.Batch, _ trainer.Model) { b.Grad(0)[0]++ }),
		"group 0 of two: loss": on(func(b *trainer.Batch, _ trainer.Model) {
			if len(b.Groups()) > 1 {
				b.Groups()[0].Loss(1)
			}
		}),
	}
}

// mistakes returns models that break other rules, keyed by a part of the expected error.
func mistakes() map[string]trainer.Model {
	return map[string]trainer.Model{
		"add the gradient to the element": around(careful(), func(b *trainer.Batch, gradient gradient) (float64, error) {
			clear(b.Grad(1))
			return gradient(b)
		}),
		"did not call Wait(1, 0) for p1": around(careful(), func(b *trainer.Batch, gradient gradient) (float64, error) {
			return gradient(b.Wrap(func(g *trainer.Gate) {
				wait := g.Wait
				g.Wait = func(i, from int) {
					if wait != nil && i == 0 {
						wait(i, from)
					}
				}
			}))
		}),
		"call Wait before each parameter is read": with(func(m *trainer.Model) {
			p, gradient := m.Params[0].Data, m.Gradient
			m.Gradient = func(b *trainer.Batch) (float64, error) {
				early := p[0]
				loss, err := gradient(b)
				return loss + float64(early), err
			}
		}),
		"Done(1, 0) of group 0": around(careful(), func(b *trainer.Batch, gradient gradient) (float64, error) {
			return gradient(b.Wrap(func(g *trainer.Gate) {
				done := g.Done
				g.Done = func(k, i, from int) {
					if done != nil && (i == 0 || k == len(b.Groups())-1) {
						done(k, i, from)
					}
				}
			}))
		}),
		"sum over the samples": around(with(func(m *trainer.Model) { m.Grouped = false }), func(b *trainer.Batch, gradient gradient) (float64, error) {
			loss, err := gradient(b)
			return loss + 1, err // wrong: adds 1 per call, not per sample
		}),
		"elements of p0 are missing": with(func(m *trainer.Model) { m.Order = func(bool) []trainer.Piece { return []trainer.Piece{{Param: 1}} } }),
		"were done in the order": with(func(m *trainer.Model) {
			m.Order = func(bool) []trainer.Piece { return []trainer.Piece{{}, {Param: 1}} }
		}),
		"whose result is discarded (Batch.Err): lost": around(careful(), func(b *trainer.Batch, gradient gradient) (float64, error) {
			if b.Err() != nil {
				return 0, errors.New("lost")
			}
			return gradient(b)
		}),
	}
}

// CheckModel finds each mistake, and its error describes it.
func TestCheckModel(t *testing.T) {
	samples := []int{4, 0, 2, 7, 1, 3}
	if err := trainer.CheckModel(careful(), samples); err != nil {
		t.Errorf("a model without a mistake: %v", err)
	}
	all := mistakes()
	maps.Copy(all, simpleMistakes())
	for want, m := range all {
		before := paramsOf(m)
		if err := trainer.CheckModel(m, samples); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if !reflect.DeepEqual(paramsOf(m), before) {
			t.Errorf("%s: the parameters are others afterwards", want)
		}
	}
	if err := trainer.CheckModel(careful(), samples[:1]); err == nil {
		t.Error("one sample was enough")
	}
}

// own is an Updater with an optional mistake.
type own struct {
	params []trainer.Param
	steps  []byte // one for each update
	// clips changes the mean, forgets loses the state, and drifts saves other bytes each time.
	clips, forgets, drifts bool
	saves                  byte
}

func (o *own) Apply(_ optim.Commit, mean [][]float32) error {
	o.steps = append(o.steps, 1)
	for i, v := range mean {
		for k := range v {
			o.params[i].Data[k] -= v[k] / float32(len(o.steps))
			if o.clips {
				v[k] = 0
			}
		}
	}
	return nil
}

func (o *own) Save() ([]byte, error) {
	o.saves++
	if o.drifts {
		return []byte{o.saves}, nil
	}
	return slices.Clone(o.steps), nil
}

func (o *own) Load(state []byte) error {
	switch {
	case o.drifts:
		o.steps = nil
	case !o.forgets:
		o.steps = state
	}
	return nil
}

// CheckModel checks the Updater of a model, and leaves its parameters and its state as they were.
func TestCheckModelWithAnUpdater(t *testing.T) {
	for want, o := range map[string]*own{
		"":                              {},
		"has changed the mean gradient": {clips: true},
		"Save must return all that":     {forgets: true},
		"Save must return the same":     {drifts: true},
	} {
		m := careful()
		m.Waits, o.params, m.Updater = false, m.Params, o
		before := paramsOf(m)
		err := trainer.CheckModel(m, []int{4, 0, 2, 7})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if !reflect.DeepEqual(paramsOf(m), before) || !o.forgets && len(o.steps) != 0 {
			t.Errorf("%q: parameters or state are others afterwards", want)
		}
	}
}

// paramsOf copies the parameters of a model.
func paramsOf(m trainer.Model) (all [][]float32) {
	for _, p := range m.Params {
		all = append(all, slices.Clone(p.Data))
	}
	return all
}

// A wrapper that replaces Gradient keeps the abilities of the model. Calls have as many samples as without the wrapper, steps still
// begin while the previous step is reduced, and the weights are the same.
func TestWrappersLoseNothing(t *testing.T) {
	for _, exactly := range []bool{false, true} {
		var sums []string
		var calls [2][]int
		for k, wraps := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				cfg := dyadic(6)
				cfg.Gradients.Exact = exactly
				a := newArena(2, cfg)
				models := a.broadly(t, 1000, 0)
				a.adjust = wrapped(a.adjust, func(x *actor) { x.trained = perMicrobatch{broad: x.trained.(*broad)} })
				a.wraps = wraps
				a.play(t)
				sums = append(sums, a.check(t, "wrapped"))
				for _, m := range models() {
					calls[k] = append(calls[k], m.done...)
					if n := m.resumed.Load(); !exactly && n != 5 || exactly && n != 0 {
						t.Errorf("exact %t, wrapped %t: %d steps have begun early", exactly, wraps, n)
					}
				}
			})
		}
		if sums[0] != sums[1] || !slices.Equal(calls[0], calls[1]) || len(calls[0]) == 0 {
			t.Errorf("exact %t: weights %v, calls of %v samples", exactly, sums, calls)
		}
	}
}
