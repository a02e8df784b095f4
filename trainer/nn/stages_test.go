package nn_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/nn"
)

// A gradient has the same bits if each parameter is updated only when the network waits for it, and
// if the network evaluates or predicts other samples before the call of Grad returns.
func TestStages(t *testing.T) {
	samples := []int{4, 0, 2}
	wide := network{"wide", nn.Shape{C: 500, H: 1, W: 1}, []nn.Layer{nn.Dense(300), nn.ReLU(), nn.Dense(3)}, nil}
	for _, c := range append(networks(), wide) {
		data := randomTable(6, c.in, 2)
		n, want := newNetwork(t, c, data)
		loss, err := n.Model().Accumulate(want, samples, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, between := range map[string]func() error{
			"nothing": func() error { return nil },
			"evaluation": func() error {
				_, err := n.Evaluate(t.Context(), data, 0, 5)
				return err
			},
			"prediction": func() error {
				_, err := n.Predict(data.Inputs[1])
				return err
			},
		} {
			var later [][]float32
			for _, p := range n.Params() {
				later = append(later, slices.Clone(p.Data))
				for k := range p.Data {
					p.Data[k] = float32(math.NaN())
				}
			}
			waits, grad := 0, zeros(n)
			var failed error
			got, err := n.Gradient(trainer.NewBatch([][]int{samples}, trainer.Gate{
				Wait: func(i, from int) {
					waits++
					copy(n.Params()[i].Data[from:], later[i][from:])
				},
				Grad: func(i int) []float32 {
					if i == 0 {
						failed = between()
					}
					return grad[i]
				},
			}))
			if more := waits - len(n.Params()); c.name == "wide" && more != 7 || c.name != "wide" && more != 0 {
				t.Errorf("%s: waited %d times for %d parameters", c.name, waits, len(n.Params()))
			}
			if err = errors.Join(err, failed); err != nil || got != loss {
				t.Errorf("%s, %s between: loss %v, error %v, want %v", c.name, name, got, err, loss)
			}
			for i := range grad {
				if !slices.Equal(grad[i], want[i]) {
					t.Errorf("%s, %s between: gradient of %s is %v, want %v", c.name, name, n.Params()[i].Name, grad[i], want[i])
				}
			}
		}
	}
}

// When the Err function of a batch returns an error, a network stops computing the batch and
// reports no gradients.
func TestUselessBatch(t *testing.T) {
	c := networks()[1]
	n, _ := newNetwork(t, c, randomTable(6, c.in, 2))
	failed := errors.New("not there")
	for name, at := range map[string]int{"in the forward pass": 2, "before the backward pass": 99} {
		waits, asked, grad := 0, 0, zeros(n)
		var useless error
		_, err := n.Gradient(trainer.NewBatch([][]int{{1}}, trainer.Gate{
			Wait: func(int, int) {
				if waits++; waits == at {
					useless = failed
				}
			},
			Grad: func(i int) []float32 {
				asked++
				useless = failed
				return grad[i]
			},
			Err:  func() error { return useless },
			Done: func(_, i, _ int) { t.Errorf("%s: gradient %d is complete", name, i) },
		}))
		if !errors.Is(err, failed) {
			t.Errorf("%s: error %v after %d parameters and %d gradients", name, err, waits, asked)
		}
	}
}

// Every network passes trainer.CheckModel. A wrapped network passes too, and has the same capabilities.
func TestModels(t *testing.T) {
	for _, c := range slices.Concat(networks(), exactNetworks()) {
		n, _ := newNetwork(t, c, randomTable(9, c.in, 2))
		m := n.Model()
		gradient := m.Gradient
		m.Gradient = func(b *trainer.Batch) (float64, error) {
			return gradient(b.Wrap(func(*trainer.Gate) {}))
		}
		for name, m := range map[string]trainer.Model{"model": n.Model(), "wrapped": m} {
			if err := trainer.CheckModel(m, []int{8, 1, 0, 5, 3}); err != nil {
				t.Errorf("%s, %s: %v", c.name, name, err)
			}
			if !m.Waits || !m.Grouped || m.MaxSamples < 2 || m.Order == nil {
				t.Errorf("%s, %s: it lacks something: %+v", c.name, name, m)
			}
		}
	}
}
