package local_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/local"
	"github.com/elrun/elrun/trainer/nn"
	"github.com/elrun/elrun/trainer/optim"
)

// A share that is computed in one call has the same paths as a share computed path by path. This also holds for the short paths
// at the end of a pass. Without rounding the bits are equal. A single peer waits for nobody, so it computes path by path.
func TestPathsInOneCall(t *testing.T) {
	cfg := trainer.Config{Samples: 80, GlobalBatch: 32, Microbatch: 4, Passes: 3, Optimizer: optim.SGD{}, Schedule: optim.Constant(0.25)}
	for _, steps := range []int{1, 2} {
		rounds := func(t *testing.T) (trainer.Model, trainer.Config) {
			return wrapped(t, dots(), cfg, local.Config{Steps: steps, Delay: true})
		}
		want := train(t, 1, rounds)
		if got := train(t, 3, rounds); got.SHA256 != want.SHA256 || got.Steps != want.Steps {
			t.Errorf("%d local steps: three peers %v, one peer %v", steps, got, want)
		}
	}
}

// A path whose length follows the peer's speed uses the learning rates of the whole round, whatever the number of its steps.
func TestPathsBySpeedFollowTheSchedule(t *testing.T) {
	m, cfg := newBowl(), ordinary(4)
	cfg.Samples = 400
	m.params = m.params[:1]
	var asked []int64
	cfg.Schedule = func(step int64) float64 {
		asked = append(asked, step)
		return 0.1
	}
	model, _ := wrapped(t, m.model(), cfg, local.Config{Steps: 4, BySpeed: true})
	for samples, want := range map[int][]int64{
		2 * 5:   {5, 7},
		4 * 5:   {5, 6, 7, 8},
		8*5 - 3: {5, 5, 6, 6, 7, 7, 8, 8},
	} {
		asked = nil
		batch := trainer.NewBatch([][]int{slices.Repeat([]int{1}, samples)}, trainer.Gate{Step: 2, Grad: func(int) []float32 { return make([]float32, 3) }})
		if _, err := model.Gradient(batch); err != nil || !slices.Equal(asked, want) {
			t.Errorf("%d samples: rates of steps %v, error %v, want %v", samples, asked, err, want)
		}
	}
}

// clouds returns samples of three overlapping classes. No model can separate them completely.
func clouds() (data nn.Table) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 240 {
		x := make([]float32, 8)
		for j := range x {
			x[j] = float32(rng.NormFloat64()) + float32(math.Cos(float64(i%3*5+j*2)))
		}
		data.Inputs, data.Classes = append(data.Inputs, x), append(data.Classes, i%3)
	}
	return data
}

// uneven trains at four peers, one of which has a quarter of the others' speed. It returns the final loss, and the fraction of
// the peers' speeds that was used after the shares had settled.
func uneven(t *testing.T, c local.Config) (used, loss float64) {
	t.Helper()
	const batch, samples, passes = 5, 240, 60
	var mu sync.Mutex
	var begun, ended time.Time // times at which the second half began and ended
	computed := 0              // samples computed in the second half
	var results collected
	synctest.Test(t, func(t *testing.T) {
		network := simnet.New(simnet.Config{Seed: 1, Link: simnet.Link{Delay: 100 * time.Microsecond}})
		cluster.Start(t, 4, network, func(ctx context.Context, g *elastic.Group) error {
			net, err := nn.Softmax(clouds(), nn.Shape{C: 8, H: 1, W: 1}, 3, 7)
			if err != nil {
				return err
			}
			pace := time.Millisecond
			if g.Self().Index == 3 {
				pace *= 4
			}
			m := net.Model()
			gradient := m.Gradient
			m.Gradient = func(b *trainer.Batch) (float64, error) {
				<-time.After(pace)
				return gradient(b)
			}
			cfg := trainer.Config{Samples: samples, GlobalBatch: 4 * batch, Microbatch: batch, Passes: passes,
				Optimizer: optim.SGD{Momentum: 0.9}, Schedule: optim.Constant(0.01),
				Evaluate: func(ctx context.Context, part, parts int) (trainer.Score, error) {
					return net.Evaluate(ctx, clouds(), samples*part/parts, samples*(part+1)/parts)
				},
				Hooks: trainer.Hooks{Done: results.add},
			}
			cfg.Hooks.OnStep = func(r trainer.StepReport) {
				mu.Lock()
				defer mu.Unlock()
				if r.Step == r.Of/2 && begun.IsZero() {
					begun = time.Now()
				}
				if r.Step > r.Of/2 {
					ended = time.Now()
					computed += r.ShareSamples
				}
			}
			m, cfg = wrapped(t, m, cfg, c)
			return trainer.Run(ctx, g, m, cfg)
		}).Wait()
	})
	score := results.one(t, 4).Score
	speeds := (3 + 0.25) * batch / float64(time.Millisecond) // sum of all speeds, in samples per nanosecond
	return float64(computed) / float64(ended.Sub(begun)) / speeds, score.MeanLoss()
}

// If the number of local steps follows each peer's speed, peers of different speeds do not wait for each other. They learn as
// much from the same number of samples as with paths of equal length.
func TestLocalStepsBySpeed(t *testing.T) {
	fixed, want := uneven(t, local.Config{Steps: 12})
	used, loss := uneven(t, local.Config{Steps: 12, BySpeed: true})
	t.Logf("%.1f %% of the sum of speeds, with equal paths %.1f %%; loss %.4f and %.4f", 100*used, 100*fixed, loss, want)
	if used < 0.97 {
		t.Errorf("%.1f %% of the sum of speeds are used, want 97 %%", 100*used)
	}
	if math.Abs(loss/want-1) > 0.02 {
		t.Errorf("loss %v, with equal paths %v, want at most 2 %% of difference", loss, want)
	}
}

// across trains a model of 500 KB at four peers. The latency is 50 ms, each peer sends at most 250 KB per second, and a local
// step takes 250 ms. across returns the time of a round in the middle of the run.
func across(t *testing.T, c local.Config, rounds int) (round time.Duration) {
	t.Helper()
	const peers, n = 4, 125_000
	var mu sync.Mutex
	var all []time.Duration
	synctest.Test(t, func(t *testing.T) {
		network := simnet.New(simnet.Config{Seed: 1, Link: simnet.Link{Delay: 50 * time.Millisecond, Bandwidth: 250_000}})
		cluster.Start(t, peers, network, func(ctx context.Context, g *elastic.Group) error {
			params := []trainer.Param{{Name: "p", Shape: []int{n}, Data: make([]float32, n)}}
			m := trainer.Model{Params: params, Gradient: func(b *trainer.Batch) (float64, error) {
				<-time.After(250 * time.Millisecond)
				grad := b.Grad(0)
				for i := range grad {
					grad[i] += float32(i%7 - b.Samples()[0]%5)
				}
				return 1, nil
			}}
			cfg := trainer.Config{Samples: peers * c.Steps * 5, GlobalBatch: peers, Microbatch: 1, Steps: int64(rounds * c.Steps),
				Balancing: trainer.Balancing{Policy: "equal"},
				Optimizer: optim.SGD{}, Schedule: optim.Constant(0.001),
				Hooks: trainer.Hooks{OnStep: func(r trainer.StepReport) {
					mu.Lock()
					defer mu.Unlock()
					if r.Step > 2 && r.Step < r.Of {
						all = append(all, r.Total)
					}
				}}}
			m, cfg = wrapped(t, m, cfg, c)
			return trainer.Run(ctx, g, m, cfg)
		}).Wait()
	})
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// If sums are slow, local steps reduce the time per sample. With a delay, no peer waits for sums while the computation takes
// longer than the sums; otherwise a round takes as long as its sums.
func TestRoundsTakeTheLongerOfBoth(t *testing.T) {
	every := across(t, local.Config{Steps: 1}, 6)
	sums := every - 250*time.Millisecond
	for _, steps := range []int{20, 5} {
		computing := time.Duration(steps) * 250 * time.Millisecond
		whole, late := across(t, local.Config{Steps: steps}, 6), across(t, local.Config{Steps: steps, Delay: true}, 8)
		ratio := late.Seconds() / max(computing, sums).Seconds()
		t.Logf("H = %d: sums take %v and computing %v: a round %v, with a delay %v, %.3f times the longer; %.1f times the samples a second of H = 1",
			steps, sums, computing, whole, late, ratio, float64(steps)*every.Seconds()/late.Seconds())
		// Sums that follow each other without a pause take slightly longer than single sums.
		most := 1.05
		if computing < sums {
			most = 1.15
		}
		if ratio > most {
			t.Errorf("H = %d: a round takes %.3f times the longer of computing and sums, want %.2f", steps, ratio, most)
		}
	}
	// Sums that take less time than 20 steps are hidden completely. The gain is then at its limit: the time of a step with its
	// sum, divided by the time of a step without a sum. With these links the limit is about ten.
	most := every.Seconds() / 0.25
	if gain := 20 * every.Seconds() / across(t, local.Config{Steps: 20, Delay: true}, 6).Seconds(); gain < 0.99*most || most < 9 {
		t.Errorf("20 local steps compute %.1f times the samples a second of one, want the %.1f that they would without sums, and that at least 9", gain, most)
	}
}
