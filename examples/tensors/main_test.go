package main_test

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/elastic"
	tensors "github.com/elrun/elrun/examples/tensors"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/trainer"
	"gorgonia.org/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Groups of all sizes train the same model, which separates the rings.
func TestTrains(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var results []trainer.Result
			cluster.Start(t, n, simnet.New(simnet.Config{Seed: 1}), func(ctx context.Context, g *elastic.Group) error {
				return tensors.Train(ctx, g, 30, func(r trainer.Result) {
					mu.Lock()
					defer mu.Unlock()
					results = append(results, r)
				})
			}).Wait()
			if len(results) != n {
				t.Fatalf("%d of %d peers have a result", len(results), n)
			}
			for _, r := range results {
				if r.SHA256 != results[0].SHA256 || *r.Score != *results[0].Score {
					t.Errorf("%d peers: %v and %v", n, r, results[0])
				}
			}
			t.Logf("%d peers: %v", n, results[0])
			if a := results[0].Score.Accuracy(); a < 0.97 {
				t.Errorf("%d peers: accuracy %v", n, a)
			}
		})
	}
}

// The model satisfies trainer.CheckModel.
func TestCheckModel(t *testing.T) {
	m, err := tensors.NewModel(tensors.Data{
		Points: tensor.New(tensor.WithShape(3, 2), tensor.WithBacking([]float32{0.5, -0.25, 1, 1.5, -2, 0.75})),
		Rings:  []int{0, 2, 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := trainer.CheckModel(trainer.Model{Params: m.Params(), Gradient: m.Gradient}, []int{2, 0, 1}); err != nil {
		t.Error(err)
	}
}

// Gradient agrees with the difference quotient of the loss.
func TestGradient(t *testing.T) {
	data := tensors.Data{
		Points: tensor.New(tensor.WithShape(3, 2), tensor.WithBacking([]float32{0.5, -0.25, 1, 1.5, -2, 0.75})),
		Rings:  []int{0, 2, 1},
	}
	m, err := tensors.NewModel(data)
	if err != nil {
		t.Fatal(err)
	}
	samples := []int{2, 0, 1, 2}
	const before = 1 // value of the gradient before the call, as from other microbatches
	loss := func() (float64, [][]float32) {
		grad := make([][]float32, len(m.Params()))
		for i, p := range m.Params() {
			grad[i] = slices.Repeat([]float32{before}, len(p.Data))
		}
		var order []int
		model := trainer.Model{Params: m.Params(), Gradient: m.Gradient}
		sum, err := model.Accumulate(grad, samples, func(i, _ int) { order = append(order, i) })
		if err != nil || !slices.Equal(order, []int{3, 2}) {
			t.Fatalf("error %v, done %v", err, order)
		}
		return sum, grad
	}
	_, grad := loss()
	const step = 1e-2
	for i, p := range m.Params() {
		for k := range p.Data {
			at := p.Data[k]
			p.Data[k] = at + step
			above, _ := loss()
			p.Data[k] = at - step
			below, _ := loss()
			p.Data[k] = at
			if want := before + (above-below)/(2*step); math.Abs(want-float64(grad[i][k])) > 2e-3*(1+math.Abs(want)) {
				t.Errorf("%s[%d]: gradient %v, difference quotient %v", p.Name, k, grad[i][k], want)
			}
		}
	}
}
