package nn_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/nn"
)

var (
	_ trainer.Staged  = (*nn.Network)(nil)
	_ trainer.Ordered = (*nn.Network)(nil)
	_ trainer.Abreast = (*nn.Network)(nil)
)

// gradients are zeroed vectors for the parameters of a network.
func gradients(n *nn.Network) (grad [][]float32) {
	for _, p := range n.Params() {
		grad = append(grad, make([]float32, len(p.Data)))
	}
	return grad
}

// The two stages are one to the bit, also where a parameter is there only when it is asked
// for, and where something else is computed between them.
func TestStages(t *testing.T) {
	samples := []int{4, 0, 2}
	wide := network{"wide", nn.Shape{C: 500, H: 1, W: 1}, []nn.Layer{nn.Dense(300), nn.ReLU(), nn.Dense(3)}, nil}
	for _, c := range append(networks(), wide) {
		data := randomTable(6, c.in, 2)
		n, _ := newNetwork(t, c, data)
		want := gradients(n)
		loss, err := n.AccumulatePieces(want, samples, func(int, int) {})
		if err != nil {
			t.Fatal(err)
		}
		for name, between := range map[string]func() error{
			"nothing": func() error { return nil },
			"evaluation": func() error {
				_, err := n.Evaluate(t.Context(), data, 0, 5)
				return err
			},
			"another gradient": func() error {
				_, err := n.Accumulate(gradients(n), []int{1}, func(int) {})
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
			given := slices.Clone(samples)
			asked := 0
			err := n.Forward(given, func(i, from int) error {
				asked++
				copy(n.Params()[i].Data[from:], later[i][from:])
				return nil
			})
			if more := asked - len(n.Params()); c.name == "wide" && more != 7 || c.name != "wide" && more != 0 {
				t.Errorf("%s: asked %d times for %d parameters", c.name, asked, len(n.Params()))
			}
			clear(given)
			if err != nil {
				t.Fatal(err)
			}
			if err := between(); err != nil {
				t.Fatal(err)
			}
			grad := gradients(n)
			got, err := n.Backward(grad, func(int, int) {})
			if err != nil || got != loss {
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

// An error of a parameter ends the first stage; the second one is whole all the same.
func TestStagesWithErrors(t *testing.T) {
	c := networks()[1]
	n, _ := newNetwork(t, c, randomTable(6, c.in, 2))
	failed := errors.New("not there")
	asked := 0
	err := n.Forward([]int{1}, func(i, _ int) error {
		if asked++; i == 2 {
			return failed
		}
		return nil
	})
	if !errors.Is(err, failed) || asked != 3 {
		t.Errorf("error %v after %d parameters", err, asked)
	}
	want, grad := gradients(n), gradients(n)
	if _, err := n.Accumulate(want, []int{1}, func(int) {}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Backward(grad, func(int, int) {}); err != nil || !slices.Equal(grad[0], want[0]) {
		t.Errorf("error %v, gradient %v, want %v", err, grad[0], want[0])
	}
	if err := n.Forward([]int{99}, func(int, int) error { return nil }); err == nil {
		t.Error("a sample that is not there was computed")
	}
	if err := n.Forward(nil, func(int, int) error { return nil }); err != nil {
		t.Errorf("of no samples: %v", err)
	}
	var told []int
	if loss, err := n.Backward(gradients(n), func(i, _ int) { told = append(told, i) }); err != nil || loss != 0 || len(told) != len(n.Params()) {
		t.Errorf("of no samples: loss %v, error %v, told of %v", loss, err, told)
	}
	if err := n.Forward([]int{1}, func(int, int) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Backward(nil, func(int, int) {}); err == nil {
		t.Error("no gradients were taken")
	}
}
