package local_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
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

// train trains at n peers, each with its own model. build returns the model and the configuration. train returns the result, and
// checks that all peers have the same.
func train(t *testing.T, n int, build func(t *testing.T) (trainer.Model, trainer.Config)) trainer.Result {
	t.Helper()
	var results collected
	synctest.Test(t, func(t *testing.T) {
		cluster.Start(t, n, simnet.New(simnet.Config{Seed: 1}), func(ctx context.Context, g *elastic.Group) error {
			m, cfg := build(t)
			cfg.Hooks.Done = results.add
			return trainer.Run(ctx, g, m, cfg)
		}).Wait()
	})
	return results.one(t, n)
}

// collected has the results of all peers.
type collected struct {
	mu  sync.Mutex
	all []trainer.Result
}

func (c *collected) add(r trainer.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, r)
}

// one returns the common result of all peers, and checks that at least n peers have it.
func (c *collected) one(t *testing.T, n int) trainer.Result {
	t.Helper()
	if len(c.all) < n {
		t.Fatalf("%d of %d peers have a result", len(c.all), n)
	}
	for _, r := range c.all {
		if r.SHA256 != c.all[0].SHA256 {
			t.Fatalf("peers ended with %v and %v", c.all[0], r)
		}
	}
	return c.all[0]
}

// rings returns a network for the samples of points. Its sizes are such that products at other addresses could have other bits.
func rings(t *testing.T) *nn.Network {
	t.Helper()
	network, err := nn.MLP(points(), nn.Shape{C: 11, H: 1, W: 1}, []int{13}, 3, 7)
	if err != nil {
		t.Fatal(err)
	}
	return network
}

// points returns samples of two rings.
func points() (data nn.Table) {
	for i := range 240 {
		x := make([]float32, 11)
		for j := range x {
			x[j] = float32(math.Sin(float64(i*(j+3)) + float64(i%3)))
		}
		data.Inputs, data.Classes = append(data.Inputs, x), append(data.Classes, i%3)
	}
	return data
}

// paced returns a model whose calls take a millisecond each.
func paced(m trainer.Model) trainer.Model {
	gradient := m.Gradient
	m.Gradient = func(b *trainer.Batch) (float64, error) {
		<-time.After(time.Millisecond)
		return gradient(b)
	}
	return m
}

// exactRounds returns a model and a configuration in exact mode, with 8 paths in a round and 3 local steps in a path.
func exactRounds(t *testing.T, cfg trainer.Config, delay bool) (trainer.Model, trainer.Config) {
	t.Helper()
	cfg.Samples, cfg.GlobalBatch, cfg.Microbatch, cfg.Passes = 240, 40, 5, 30
	cfg.Gradients.Exact, cfg.Balancing.Admit = true, trainer.AdmitAlways
	cfg.Optimizer, cfg.Schedule = optim.Adam{}, optim.Constant(0.01)
	return wrapped(t, paced(rings(t).Model()), cfg, local.Config{Steps: 3, Outer: optim.SGD{Momentum: 0.9, Nesterov: true}, Rate: optim.Constant(0.5), Delay: delay})
}

// In exact mode 1, 2 and 4 peers get the same bits. So do six peers of which five die while two others join.
func TestExactWhoeverComesAndGoes(t *testing.T) {
	for _, delay := range []bool{false, true} {
		t.Run(fmt.Sprint("delay ", delay), func(t *testing.T) { exactWhoeverComesAndGoes(t, delay) })
	}
}

func exactWhoeverComesAndGoes(t *testing.T, delay bool) {
	still := func(t *testing.T) (trainer.Model, trainer.Config) { return exactRounds(t, trainer.Config{}, delay) }
	want := train(t, 1, still)
	for _, n := range []int{2, 4} {
		if got := train(t, n, still); got.SHA256 != want.SHA256 {
			t.Errorf("%d peers: %v, one peer %v", n, got, want)
		}
	}

	var results collected
	var reported atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		var job *cluster.Job
		started := make(chan struct{})
		// These events happen when a round begins for the first time.
		at := map[int64]func(){5: func() { job.Kill(0) }, 11: func() { job.Join() }, 17: func() { job.Kill(2) }, 23: func() { job.Kill(3) },
			29: func() { job.Join() }, 37: func() { job.Kill(1) }, 45: func() { job.Kill(4) }}
		var mu sync.Mutex
		begin := func(round int64) {
			<-started
			mu.Lock()
			defer mu.Unlock()
			if f := at[round]; f != nil {
				f()
				delete(at, round)
			}
		}
		job = cluster.Start(t, 6, simnet.New(simnet.Config{Seed: 3}), func(ctx context.Context, g *elastic.Group) error {
			m, cfg := exactRounds(t, trainer.Config{Hooks: trainer.Hooks{OnBegin: begin}}, delay)
			cfg.Hooks.Done = results.add
			cfg.Hooks.OnStep = func(r trainer.StepReport) { reported.Add(int64(r.Recomputed)) }
			return trainer.Run(ctx, g, m, cfg)
		})
		close(started)
		job.Wait()
		if len(at) != 0 {
			t.Errorf("%d kills and joins have not happened", len(at))
		}
	})
	if got := results.one(t, 3); got.SHA256 != want.SHA256 || got.Steps != 60 {
		t.Errorf("with kills and joins %v, undisturbed %v", got, want)
	}
	if n := reported.Load(); n > 16 {
		t.Errorf("%d paths were computed twice, want none but those of the first round, for its scale", n)
	}
}

// carried trains at 4 peers and counts the bytes of all messages between them.
func carried(t *testing.T, cfg trainer.Config, c local.Config) (r trainer.Result, bytes int64) {
	t.Helper()
	var results collected
	var sum atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		network := simnet.New(simnet.Config{Seed: 1})
		network.KillWhen(func(m simnet.Message) bool {
			if m.Plane == simnet.Data {
				sum.Add(int64(m.Bytes))
			}
			return false
		})
		cluster.Start(t, 4, network, func(ctx context.Context, g *elastic.Group) error {
			m, cfg := wrapped(t, rings(t).Model(), cfg, c)
			cfg.Hooks.Done = results.add
			return trainer.Run(ctx, g, m, cfg)
		}).Wait()
	})
	return results.one(t, 4), sum.Load()
}

// A round sends as many bytes as an ordinary step, whatever the number of local steps, with every coding. All peers have the same
// bits.
func TestBytesArePerRound(t *testing.T) {
	for _, coding := range []string{"none", "int8", "topk:0.0156"} {
		cfg := trainer.Config{Samples: 240, GlobalBatch: 20, Microbatch: 5, Gradients: trainer.Gradients{Compression: coding},
			Optimizer: optim.SGD{}, Schedule: optim.Constant(0.05)}
		of := func(steps, passes int) int64 {
			cfg.Passes = passes
			r, sent := carried(t, cfg, local.Config{Steps: steps})
			if want := int64(12 / steps * passes); r.Steps != want {
				t.Fatalf("%s: %d rounds in %d passes of %d local steps, want %d", coding, r.Steps, passes, steps, want)
			}
			return sent
		}
		// The difference between runs of 30 and of 20 passes does not contain the beginning and the end of a run.
		every, sixth := of(1, 30)-of(1, 20), of(6, 30)-of(6, 20)
		if ratio := float64(every) / float64(sixth); ratio < 5.94 || ratio > 6.06 {
			t.Errorf("%s: %d bytes instead of %d, %.3f times fewer, want 6 times", coding, sixth, every, ratio)
		}
	}
}

// The wrapped model passes trainer.CheckModel with the samples of one local step. With more samples it would fail, because the
// gradient of a path of several local steps is not the sum of the gradients of its two halves.
func TestWrappedModelKeepsTheRules(t *testing.T) {
	samples := []int{5, 1, 7, 3, 9, 2, 8, 0, 11, 4, 6, 10, 12}
	cfg := trainer.Config{Samples: 240, GlobalBatch: 13, Microbatch: 13, Passes: 1, Optimizer: optim.SGD{}, Schedule: optim.Constant(0.1)}
	for _, c := range []local.Config{{Steps: 3}, {Steps: 3, Delay: true}, {Steps: 3, BySpeed: true}} {
		m, _ := wrapped(t, rings(t).Model(), cfg, c)
		if err := trainer.CheckModel(m, samples); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
