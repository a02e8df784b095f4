// Command growth compares batches that grow with the gradient noise scale (trainer.Growth) with batches of a
// fixed size, on MNIST and with one peer. docs/lineage.md has its table.
//
//	go run ./scripts/growth -data data/mnist -model mlp -seeds 5
//
// A job whose batch grows takes fewer steps. The question is whether it ends more accurate than a job
// whose fixed batch is large enough for as few steps, with the best of some learning rates.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/idx"
	"github.com/elrun/elrun/trainer/nn"
	"github.com/elrun/elrun/trainer/optim"
	"github.com/elrun/elrun/transport/mem"
)

const (
	first   = 128  // samples of the first batch
	most    = 1024 // samples of the largest batch
	warmup  = 50   // steps until the full rate
	classes = 10
)

// plan is a way to choose the batch and the rate.
type plan struct {
	name string
	// batch is the number of samples of the first step.
	batch  int
	growth trainer.Growth
}

// comparison makes the rows of the table for one model.
type comparison struct {
	train, test *idx.Set
	model       string
	passes      int
	seeds       int
}

// rates returns the peaks of the learning rate that are tried for each plan. The best one should be
// neither the lowest nor the highest.
func (c comparison) rates() []float64 {
	if c.model == "cnn" {
		return []float64{0.035, 0.05, 0.07, 0.1, 0.14, 0.2}
	}
	return []float64{0.14, 0.2, 0.28, 0.4, 0.56, 0.8}
}

// network returns the model with fresh parameters.
func (c comparison) network(seed uint64) (*nn.Network, error) {
	in := nn.Shape{C: 1, H: c.train.Rows, W: c.train.Cols}
	switch c.model {
	case "mlp":
		return nn.MLP(c.train, in, []int{64}, classes, seed)
	case "cnn":
		return nn.CNN(c.train, in, []int{4, 8}, 32, classes, seed)
	}
	return nil, fmt.Errorf("unknown model %q: take mlp or cnn", c.model)
}

// run trains with a peak of the rate, before its gain, and returns the number of steps and the score on
// the test set.
func (c comparison) run(ctx context.Context, p plan, peak float64, seed uint64) (r trainer.Result, err error) {
	network, err := c.network(seed + 1)
	if err != nil {
		return r, err
	}
	self := elastic.Member{ID: "self"}
	group, err := elastic.Join(ctx, elastic.Config{Endpoint: mem.NewNetwork().Endpoint(self), Peers: []elastic.Member{self}})
	if err != nil {
		return r, err
	}
	cfg := trainer.Config{
		Samples: c.train.Len(), GlobalBatch: p.batch, Growth: p.growth, Passes: c.passes, Seed: seed,
		Optimizer: optim.SGD{Momentum: 0.9, Nesterov: true},
		Evaluate: func(ctx context.Context, _, _ int) (trainer.Score, error) {
			return network.Evaluate(ctx, c.test, 0, c.test.Len())
		},
		Hooks: trainer.Hooks{Done: func(done trainer.Result) { r = done }},
	}
	cfg.Schedule = optim.Warmup(warmup, optim.Cosine(peak, 0.02*peak, cfg.TotalSteps()-warmup))
	return r, errors.Join(trainer.Run(ctx, group, network.Model(), cfg), group.Close())
}

// row trains with each rate and seed. It prints the result with the best rate, and returns the mean
// number of steps.
func (c comparison) row(ctx context.Context, p plan) (steps int, err error) {
	var best []float64
	var bestRate float64
	for _, peak := range c.rates() {
		all, accuracies := 0, []float64(nil)
		for seed := range uint64(c.seeds) {
			r, err := c.run(ctx, p, peak, seed)
			if err != nil {
				return 0, err
			}
			all, accuracies = all+int(r.Steps), append(accuracies, 100*r.Score.Accuracy())
		}
		if best == nil || mean(accuracies) > mean(best) {
			best, bestRate, steps = accuracies, peak, all/c.seeds
		}
	}
	fmt.Printf("| %s | %s | %g | %d | %.2f %% | %.2f to %.2f |\n", c.model, p.name, bestRate, steps, mean(best), slices.Min(best), slices.Max(best))
	return steps, nil
}

// compare prints the rows of all plans.
func (c comparison) compare(ctx context.Context) error {
	fmt.Printf("| model | batch | best rate | steps | mean accuracy | %d seeds |\n| --- | --- | --- | --- | --- | --- |\n", c.seeds)
	if _, err := c.row(ctx, plan{name: fmt.Sprint(first), batch: first}); err != nil {
		return err
	}
	for _, rate := range []string{trainer.GrowLinear, trainer.GrowAdaScale, trainer.GrowRoot} {
		name := fmt.Sprintf("%d to %d, %s", first, most, rate)
		steps, err := c.row(ctx, plan{name, first, trainer.Growth{Max: most, Rate: rate}})
		if err != nil {
			return err
		}
		same := c.passes * c.train.Len() / steps
		if _, err := c.row(ctx, plan{name: fmt.Sprint(same, ", as many steps"), batch: same}); err != nil {
			return err
		}
	}
	return nil
}

// mean returns the mean of values.
func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

func main() {
	dir := flag.String("data", "data/mnist", "folder of the data set")
	model := flag.String("model", "mlp", "mlp or cnn")
	passes := flag.Int("passes", 3, "passes over the data")
	seeds := flag.Int("seeds", 5, "runs of each plan and rate")
	flag.Parse()
	if err := run(context.Background(), *dir, comparison{model: *model, passes: *passes, seeds: *seeds}); err != nil {
		fmt.Fprintln(os.Stderr, "growth:", err)
		os.Exit(1)
	}
}

// run opens the data set of a comparison and prints its table.
func run(ctx context.Context, dir string, c comparison) (err error) {
	if c.train, err = idx.Open(dir, "train", classes); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.train.Close()) }()
	if c.test, err = idx.Open(dir, "t10k", classes); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.test.Close()) }()
	return c.compare(ctx)
}
