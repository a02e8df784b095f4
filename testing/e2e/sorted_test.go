package e2e

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/idx"
	"github.com/elrun/elrun/trainer/local"
	"github.com/elrun/elrun/trainer/nn"
	"github.com/elrun/elrun/trainer/optim"
)

// sorted is MNIST as seen by one of several peers whose data is sorted by label. Nine of ten samples are replaced by samples from
// the peer's own part of the labels.
type sorted struct {
	*idx.Set
	own []int // samples of the peer's part; empty if the data is not sorted
}

// Sample implements nn.Data.
func (s sorted) Sample(dst []float32, i int) int {
	if i%10 > 0 && len(s.own) > 0 {
		i = s.own[i%len(s.own)]
	}
	return s.Set.Sample(dst, i)
}

// byLabel returns the samples of a set in the order of their labels.
func byLabel(t *testing.T, set *idx.Set) []int {
	t.Helper()
	labels, order := make([]int, set.Len()), make([]int, set.Len())
	pixels := make([]float32, set.Rows*set.Cols)
	for i := range order {
		labels[i], order[i] = set.Sample(pixels, i), i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(labels[a], labels[b]) })
	return order
}

// sortedJob is a training with four peers, each with one path in a round.
type sortedJob struct {
	sets   [2]*idx.Set // the training set and the test set
	order  []int       // nil if the data is not sorted
	passes int
	steps  int // number of local steps; 1 is ordinary training
	outer  optim.Optimizer
	rate   float64 // learning rate of outer
}

// accuracy trains, and returns the accuracy on the test set.
func (j sortedJob) accuracy(t *testing.T) float64 {
	t.Helper()
	const peers = 4
	var scores [peers]*trainer.Score
	cluster.Start(t, peers, simnet.New(simnet.Config{}), func(ctx context.Context, g *elastic.Group) error {
		rank := g.Self().Index
		n := len(j.order) / peers
		data := sorted{j.sets[0], j.order[rank*n : (rank+1)*n]}
		network, err := nn.MLP(data, nn.Shape{C: 1, H: 28, W: 28}, []int{64}, 10, 1)
		if err != nil {
			return err
		}
		cfg := trainer.Config{Samples: data.Len(), GlobalBatch: peers * 20, Microbatch: 20, Passes: j.passes,
			Balancing: trainer.Balancing{Policy: "equal"}, Optimizer: optim.SGD{Momentum: 0.9, Nesterov: true},
			Evaluate: func(ctx context.Context, part, parts int) (trainer.Score, error) {
				n := j.sets[1].Len()
				return network.Evaluate(ctx, j.sets[1], n*part/parts, n*(part+1)/parts)
			},
			Hooks: trainer.Hooks{Done: func(r trainer.Result) { scores[rank] = r.Score }}}
		cfg.Schedule = optim.Cosine(0.05, 0, cfg.TotalSteps())
		m := network.Model()
		if j.steps > 1 {
			if m, cfg, err = local.Wrap(m, cfg, local.Config{Steps: j.steps, Outer: j.outer, Rate: optim.Constant(j.rate)}); err != nil {
				return err
			}
		}
		return trainer.Run(ctx, g, m, cfg)
	}).Wait()
	for rank, s := range scores {
		if s == nil || *s != *scores[0] {
			t.Fatalf("rank %d has the score %v, rank 0 %v", rank, s, scores[0])
		}
	}
	return scores[0].Accuracy()
}

// TestSortedByLabel measures how local steps affect accuracy if each of four peers has different
// data: nine of ten samples come from the peer's quarter of the samples, sorted by label. It
// measures the numbers of the table in docs/benchmarks.md:
//
//	go test -count=1 -timeout=1h -v -run TestSortedByLabel ./testing/e2e -long
//
// The short form has one pass, and checks that the model learns.
func TestSortedByLabel(t *testing.T) {
	_, dir := mnist(t)
	var sets [2]*idx.Set
	for i, part := range []string{"train", "t10k"} {
		set, err := idx.Open(filepath.Clean(dir), part, 10)
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		sets[i] = set
	}
	order := byLabel(t, sets[0])
	averaging, momentum := optim.SGD{}, optim.SGD{Momentum: 0.9, Nesterov: true}
	for _, c := range []struct {
		name     string
		job      sortedJob
		accuracy float64 // lower bound after one pass, if the data is sorted
		long     bool
	}{
		{"H = 1", sortedJob{steps: 1}, 0.85, false},
		{"H = 10, averaging", sortedJob{steps: 10, outer: averaging, rate: 1}, 0.85, false},
		{"H = 50, averaging", sortedJob{steps: 50, outer: averaging, rate: 1}, 0.85, false},
		{"H = 10, rate 0.7 and momentum 0.9", sortedJob{steps: 10, outer: momentum, rate: 0.7}, 0.6, true},
		{"H = 50, rate 0.7 and momentum 0.9", sortedJob{steps: 50, outer: momentum, rate: 0.7}, 0.6, true},
	} {
		if c.long && !long() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			j := c.job
			j.sets, j.order, j.passes = sets, order, pick(1, 3)
			accuracy := j.accuracy(t)
			t.Logf("accuracy %.4f where 90 %% are sorted by label", accuracy)
			if accuracy < c.accuracy {
				t.Errorf("accuracy %.4f, want %.2f", accuracy, c.accuracy)
			}
			if long() {
				j.order = nil
				t.Logf("accuracy %.4f where nothing is sorted", j.accuracy(t))
			}
		})
	}
}
