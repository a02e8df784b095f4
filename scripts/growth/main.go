// Command growth compares batches that grow with the gradient noise scale with batches of a fixed size,
// on MNIST and on one thread. docs/lineage.md has its table.
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
	"math"
	"math/rand/v2"
	"os"
	"slices"

	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/idx"
	"github.com/elrun/elrun/trainer/nn"
	"github.com/elrun/elrun/trainer/optim"
)

const (
	first = 128  // samples of the first batch
	most  = 1024 // samples of the largest batch
	// efficiency is the least share of its worth that a sample keeps when the batch is doubled
	// (McCandlish and others, 2018: (noise + first) / (noise + batch)).
	efficiency = 0.8
	every      = 20 // steps between two doublings
	warmup     = 50 // steps until the full rate
	groups     = 4  // parts of a batch, from which the noise is estimated
	classes    = 10
)

// plan is a way to choose the batch and the rate.
type plan struct {
	name string
	// batch is a fixed number of samples in a step; 0 for a batch that grows.
	batch int
	// gain returns the factor of the learning rate for a batch, given the noise scale.
	gain func(batch int, noise float64) float64
}

// none keeps the rate.
func none(int, float64) float64 { return 1 }

// linear is the rule of Goyal and others, 2017.
func linear(batch int, _ float64) float64 { return float64(batch) / first }

// root keeps the variance of the updates.
func root(batch int, noise float64) float64 { return math.Sqrt(linear(batch, noise)) }

// adaScale is the gain of Johnson and others, 2020.
func adaScale(batch int, noise float64) float64 {
	return (noise/first + 1) / (noise/float64(batch) + 1)
}

// data is the data set, and the passes over it.
type data struct {
	train, test *idx.Set
	passes      int
}

// job is a training run.
type job struct {
	data
	network       *nn.Network
	params        []trainer.Param
	state         [][][]float32
	grads         [][]float32 // mean gradient of the batch
	parts         [][]float32 // sum of one group
	seen          int         // samples computed
	random        *rand.Rand
	order         []int   // samples of this pass that are left
	trace, signal float64 // averages, as in trainer's estimate of the noise
}

// rule is the optimizer of all plans.
func rule() optim.Optimizer { return optim.SGD{Momentum: 0.9, Nesterov: true} }

// newJob returns a run that has not begun.
func newJob(d data, network *nn.Network, seed uint64) *job {
	j := &job{data: d, network: network, params: network.Params(), random: rand.New(rand.NewPCG(seed, 1))}
	for _, q := range j.params {
		j.state = append(j.state, optim.NewState(rule(), len(q.Data)))
		j.grads, j.parts = append(j.grads, make([]float32, len(q.Data))), append(j.parts, make([]float32, len(q.Data)))
	}
	return j
}

// next returns the next samples; the last batch of a pass may be smaller.
func (j *job) next(batch int) []int {
	if len(j.order) == 0 {
		j.order = j.random.Perm(j.train.Len())
	}
	n := min(batch, len(j.order))
	samples := j.order[:n]
	j.order = j.order[n:]
	j.seen += n
	return samples
}

// gradient computes the mean gradient of samples, and updates the noise as trainer's estimate does.
func (j *job) gradient(samples []int) error {
	zero(j.grads)
	a, n := 0.0, 0.0
	for part := range slices.Chunk(samples, max(1, (len(samples)+groups-1)/groups)) {
		zero(j.parts)
		gate := trainer.Gate{Grad: func(p int) []float32 { return j.parts[p] }}
		if _, err := j.network.Gradient(trainer.NewBatch([][]int{part}, gate)); err != nil {
			return err
		}
		a += square(optim.Norm(j.parts)) / float64(len(part)) / float64(len(samples))
		for p := range j.grads {
			for i, v := range j.parts[p] {
				j.grads[p][i] += v / float32(len(samples))
			}
		}
		n++
	}
	mean := square(optim.Norm(j.grads))
	if n > 1 {
		j.trace = 0.95*j.trace + 0.05*(a-mean)*float64(len(samples))/(n-1)
		j.signal = 0.95*j.signal + 0.05*(n*mean-a)/(n-1)
	}
	return nil
}

// noise returns the noise scale: infinite while it is too large to be measured.
func (j *job) noise() float64 {
	switch {
	case j.trace <= 0:
		return 0
	case j.signal <= 0:
		return math.Inf(1)
	}
	return j.trace / j.signal
}

// run trains with a peak of the rate, before its gain, and returns the number of steps and the accuracy on
// the test set.
func (j *job) run(ctx context.Context, p plan, peak float64) (int, float64, error) {
	total, batch, steps, changed := j.passes*j.train.Len(), p.batch, 0, 0
	if batch == 0 {
		batch = first
	}
	for j.seen < total {
		at := float64(j.seen) / float64(total)
		if err := j.gradient(j.next(batch)); err != nil {
			return 0, 0, err
		}
		steps++
		noise := j.noise()
		rate := peak * p.gain(batch, noise) * max(0.02, (1+math.Cos(math.Pi*at))/2) * min(1, float64(steps)/warmup)
		for i, q := range j.params {
			rule().Update(int64(steps), rate, q.Data, j.grads[i], j.state[i])
		}
		larger := min(2*batch, most)
		if p.batch == 0 && batch < most && steps-changed >= every && (math.IsInf(noise, 1) || (noise+first)/(noise+float64(larger)) >= efficiency) {
			batch, changed = larger, steps
		}
	}
	score, err := j.network.Evaluate(ctx, j.test, 0, j.test.Len())
	return steps, score.Accuracy(), err
}

func zero(vectors [][]float32) {
	for _, v := range vectors {
		clear(v)
	}
}

func square(x float64) float64 { return x * x }

// comparison makes the rows of the table for one model.
type comparison struct {
	data
	model string
	seeds int
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

// row trains with each rate and seed. It prints the result with the best rate, and returns the mean
// number of steps.
func (c comparison) row(ctx context.Context, p plan) (steps int, err error) {
	var best []float64
	var bestRate float64
	for _, peak := range c.rates() {
		all, accuracies := 0, []float64(nil)
		for seed := range uint64(c.seeds) {
			network, err := c.network(seed + 1)
			if err != nil {
				return 0, err
			}
			n, accuracy, err := newJob(c.data, network, seed).run(ctx, p, peak)
			if err != nil {
				return 0, err
			}
			all, accuracies = all+n, append(accuracies, 100*accuracy)
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
	if _, err := c.row(ctx, plan{fmt.Sprint(first), first, none}); err != nil {
		return err
	}
	for _, p := range []plan{{"linear rate", 0, linear}, {"AdaScale", 0, adaScale}, {"root of the rate", 0, root}, {"same rate", 0, none}} {
		p.name = fmt.Sprintf("%d to %d, %s", first, most, p.name)
		steps, err := c.row(ctx, p)
		if err != nil {
			return err
		}
		same := c.passes * c.train.Len() / steps
		if _, err := c.row(ctx, plan{fmt.Sprint(same, ", as many steps"), same, none}); err != nil {
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
	if err := run(context.Background(), *dir, comparison{data{passes: *passes}, *model, *seeds}); err != nil {
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
