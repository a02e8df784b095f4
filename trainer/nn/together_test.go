package nn_test

import (
	"slices"
	"testing"

	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/exact"
	"github.com/elrun/elrun/trainer/nn"
)

// Microbatches that are computed in one call have the same gradients and losses, bit for bit, as
// microbatches computed alone. This also holds with deferred gradients, and after other
// computations.
func TestSeveralMicrobatches(t *testing.T) {
	late := []network{
		{"late rows", nn.Shape{C: 40, H: 1, W: 1}, []nn.Layer{nn.Dense(400), nn.ReLU(), nn.Dense(300), nn.ReLU(), nn.Dense(200), nn.ReLU(), nn.Dense(3)}, nil},
		{"late conv", nn.Shape{C: 1, H: 16, W: 16}, []nn.Layer{nn.Conv(4, 5), nn.Pool(), nn.ReLU(), nn.Conv(6, 3), nn.ReLU(), nn.Dense(3)}, nil},
	}
	for _, c := range slices.Concat(networks(), exactNetworks(), late) {
		t.Run(c.name, func(t *testing.T) {
			n, _ := newNetwork(t, c, randomTable(9, c.in, 2))
			for _, micros := range [][][]int{{{4, 0, 2}, {8}, {1, 7}}, {{3}, {5, 6}}, {{2, 1}}} {
				sameAsAlone(t, n, micros)
			}
		})
	}
}

// sameAsAlone compares one call for several microbatches with one call for each.
func sameAsAlone(t *testing.T, n *nn.Network, micros [][]int) {
	t.Helper()
	sizes := sizesOf(n)
	_, grad := exact.Views(sizes)
	got, left := make([][][]float32, len(micros)), make([][]int, len(micros))
	for k := range micros {
		got[k], left[k] = zeros(n), slices.Clone(sizes)
	}
	last := -1 // the last parameter that was reported
	losses := make([]float64, len(micros))
	rest, err := n.Gradient(trainer.NewBatch(micros, trainer.Gate{
		Grad: func(i int) []float32 { return grad[i] },
		Loss: func(k int, sum float64) { losses[k] += sum },
		Done: func(k, i, from int) {
			if from >= left[k][i] {
				t.Errorf("parameter %d of group %d is complete from %d on, after %d", i, k, from, left[k][i])
			}
			if k > 0 && left[k-1][i] > from {
				t.Errorf("parameter %d of group %d is complete from %d on before that of the one before", i, k, from)
			}
			copy(got[k][i][from:], grad[i][from:left[k][i]])
			clear(grad[i][from:left[k][i]])
			left[k][i], last = from, i
		},
	}))
	if err != nil || last < 0 {
		t.Fatalf("losses %v, error %v", losses, err)
	}
	losses[len(micros)-1] += rest
	for k, samples := range micros {
		_, want := exact.Views(sizes)
		loss, err := n.Model().Accumulate(want, samples, nil)
		if err != nil || loss != losses[k] {
			t.Errorf("loss of microbatch %d of %v: %v together, %v alone, error %v", k, micros, losses[k], loss, err)
		}
		for i := range want {
			if !slices.Equal(got[k][i], want[i]) || left[k][i] != 0 {
				t.Errorf("gradient of %s of microbatch %d of %v: %v together, %v alone", n.Params()[i].Name, k, micros, got[k][i], want[i])
			}
		}
	}
}

// An invalid call of several microbatches is an error, and the next call is not affected by it.
func TestSeveralMicrobatchesWithErrors(t *testing.T) {
	c := networks()[1]
	n, grad := newNetwork(t, c, randomTable(6, c.in, 2))
	for name, micros := range map[string][][]int{"no samples": {{1}, nil}, "no such sample": {{1}, {6}}} {
		_, err := n.Gradient(trainer.NewBatch(micros, trainer.Gate{
			Grad: func(i int) []float32 { return grad[i] },
			Done: func(int, int, int) { t.Error("a gradient is complete") },
		}))
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	sameAsAlone(t, n, [][]int{{0, 1}, {5}})
}
