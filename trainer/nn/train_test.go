package nn_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/nn"
	"github.com/elrun/elrun/trainer/optim"
)

// patterns returns samples whose classes differ in the bright part of the image, which a model can learn.
func patterns(samples int, in nn.Shape, classes int) nn.Table {
	t := randomTable(samples, in, classes)
	for i, x := range t.Inputs {
		for j := range x {
			if j*classes/len(x) == t.Classes[i] {
				x[j] += 0.7
			}
		}
	}
	return t
}

// trainAt trains for 100 steps at n ranks, checks that all ranks have the same digests, and returns the losses.
func trainAt(t *testing.T, n int, rule optim.Optimizer, rate float64, build func() (*nn.Network, error)) []float64 {
	t.Helper()
	losses, digests := make([][]float64, n), make([][]string, n)
	cluster.Start(t, n, simnet.New(simnet.Config{}), func(ctx context.Context, g *elastic.Group) error {
		m, err := build()
		if err != nil {
			return err
		}
		rank := g.Self().Index
		return trainer.Run(ctx, g, m.Model(), trainer.Config{
			Samples: 300, GlobalBatch: 64, Microbatch: 8, Steps: 100, Seed: 3, Gradients: trainer.Gradients{BucketBytes: 512},
			Optimizer: rule, Schedule: optim.Constant(rate),
			Hooks: trainer.Hooks{OnStep: func(r trainer.StepReport) {
				losses[rank], digests[rank] = append(losses[rank], r.Loss), append(digests[rank], r.Digest)
			}},
		})
	}).Wait()
	for rank := range n {
		if !slices.Equal(digests[rank], digests[0]) || !slices.Equal(losses[rank], losses[0]) || len(losses[rank]) != 100 {
			t.Fatalf("%d ranks: rank %d has other digests or losses than rank 0", n, rank)
		}
	}
	return losses[0]
}

// The models learn, and the number of peers changes only the rounding.
func TestOnePeerAndFourLoseAlike(t *testing.T) {
	in := nn.Shape{C: 1, H: 12, W: 12}
	data := patterns(300, in, 4)
	tests := map[string]struct {
		rule  optim.Optimizer
		rate  float64
		build func() (*nn.Network, error)
	}{
		"softmax, sgd": {optim.SGD{}, 0.1, func() (*nn.Network, error) { return nn.Softmax(data, in, 4, 1) }},
		"mlp, nesterov": {optim.SGD{Momentum: 0.9, Nesterov: true}, 0.02, func() (*nn.Network, error) {
			return nn.MLP(data, in, []int{20, 12}, 4, 1)
		}},
		"mlp, adamw": {optim.AdamW{WeightDecay: 0.01}, 0.002, func() (*nn.Network, error) { return nn.MLP(data, in, []int{20}, 4, 1) }},
		"cnn, adam": {optim.Adam{}, 0.002, func() (*nn.Network, error) {
			return nn.New(data, in, 1, nn.Conv(4, 3), nn.Pool(), nn.ReLU(), nn.Dense(4))
		}},
	}
	for name, tt := range tests {
		one, four := trainAt(t, 1, tt.rule, tt.rate, tt.build), trainAt(t, 4, tt.rule, tt.rate, tt.build)
		for i := range one {
			if math.Abs(one[i]-four[i]) > 1e-4*one[i] {
				t.Fatalf("%s: loss of step %d is %v with one peer, %v with four", name, i+1, one[i], four[i])
			}
		}
		if one[99] > one[0]/2 {
			t.Errorf("%s: loss went from %v to %v", name, one[0], one[99])
		}
	}
}
