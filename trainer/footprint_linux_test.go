package trainer_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/race"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/local"
	"github.com/elrun/elrun/trainer/optim"
	"github.com/elrun/elrun/transport/mem"
)

// footprint returns the bytes per parameter that a peer uses between two steps. The job has two hosts.
func footprint(t *testing.T, change func(m *trainer.Model, cfg *trainer.Config) error) float64 {
	t.Helper()
	const size, peers = 2 << 20, 2
	var used float64
	synctest.Test(t, func(t *testing.T) {
		before := liveHeap()
		var waiting atomic.Int32
		measured := make(chan struct{})
		cluster.Start(t, peers, simnet.New(simnet.Config{}), func(ctx context.Context, g *elastic.Group) error {
			m := trainer.Model{
				Params: []trainer.Param{{Name: "w", Shape: []int{size}, Data: make([]float32, size)}},
				Gradient: func(b *trainer.Batch) (float64, error) {
					b.Wait(0, 0)
					for range b.Samples() {
						b.Grad(0)[0]++
					}
					return 0, nil
				},
			}
			cfg := trainer.Config{Samples: 64, GlobalBatch: 16, Microbatch: 4, Steps: 6, Gradients: trainer.Gradients{BucketBytes: 64 << 10},
				Optimizer: optim.SGD{}, Schedule: optim.Constant(1e-3)}
			cfg.Hooks.OnStep = func(r trainer.StepReport) {
				if r.Step != 4 {
					return
				}
				if waiting.Add(1) < peers {
					<-measured
					return
				}
				synctest.Wait() // all peers are idle here, and no message is on its way
				used = float64(liveHeap()-before) / size / peers
				close(measured)
			}
			if err := change(&m, &cfg); err != nil {
				return err
			}
			return trainer.Run(ctx, g, m, cfg)
		}).Wait()
	})
	return used
}

// liveHeap returns the bytes in use after a garbage collection.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC() // the second collection empties the pools
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// memoryTable reads the table in the package's documentation. For each mode it returns the bytes per parameter with SGD, momentum
// and Adam, and the shared bytes within a host.
func memoryTable(t *testing.T) map[string][4]int {
	t.Helper()
	b, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	table := make(map[string][4]int)
	for _, row := range regexp.MustCompile(`(?m)^//\t(\S.*?) +(\d+) +(\d+) +(\d+) +(\d+)$`).FindAllStringSubmatch(string(b), -1) {
		var cells [4]int
		for i := range cells {
			cells[i], _ = strconv.Atoi(row[2+i]) // digits only
		}
		table[row[1]] = cells
	}
	return table
}

// A run uses as much memory as the table in the package's documentation says.
func TestFootprint(t *testing.T) {
	if race.Enabled {
		t.Skip("measures the heap, which the race detector does not change")
	}
	type change = func(m *trainer.Model, cfg *trainer.Config) error
	set := func(f func(m *trainer.Model, cfg *trainer.Config)) change {
		return func(m *trainer.Model, cfg *trainer.Config) error { f(m, cfg); return nil }
	}
	coding := func(name string) change {
		return set(func(_ *trainer.Model, cfg *trainer.Config) { cfg.Gradients.Compression = name })
	}
	early := "plain, Model.Waits or Gradients.Delay"
	modes := []struct {
		row string
		change
	}{
		{"plain", set(func(*trainer.Model, *trainer.Config) {})},
		{early, set(func(m *trainer.Model, _ *trainer.Config) { m.Waits = true })},
		{early, set(func(_ *trainer.Model, cfg *trainer.Config) { cfg.Gradients.Delay = true })},
		{"Exact", set(func(_ *trainer.Model, cfg *trainer.Config) { cfg.Gradients.Exact = true })},
		{"Compression, each coding", coding("fp16")},
		{"Compression, each coding", coding("bf16")},
		{"Compression, each coding", coding("int8")},
		{"Compression, each coding", coding("topk")},
		{"Compression, each coding", coding("topk:0.01:2bit")},
		{"local steps, plain", func(m *trainer.Model, cfg *trainer.Config) (err error) {
			outer := cfg.Optimizer
			cfg.Optimizer = optim.SGD{}
			cfg.Steps *= 2 // Wrap turns two steps into one round
			*m, *cfg, err = local.Wrap(*m, *cfg, local.Config{Steps: 2, Outer: outer})
			return err
		}},
	}
	table, seen := memoryTable(t), make(map[string]bool)
	for _, mode := range modes {
		for column, rule := range []optim.Optimizer{optim.SGD{}, optim.SGD{Momentum: 0.9}, optim.Adam{}} {
			if column > 0 && seen[mode.row] {
				continue // another mode of this row has measured the optimizer's state
			}
			got := footprint(t, func(m *trainer.Model, cfg *trainer.Config) error {
				cfg.Optimizer = rule
				return mode.change(m, cfg)
			})
			if want := table[mode.row][column]; math.Abs(got-float64(want)) > 0.5 { // all memory other than vectors adds 0.1
				t.Errorf("%s, %T: %.2f bytes a parameter, want %d", mode.row, rule, got, want)
			}
		}
		seen[mode.row] = true
	}
	if len(seen) != len(table) {
		t.Errorf("rows %v, measured %v", table, seen)
	}
}

// Within a host a run shares as much memory as the table says.
func TestSharedFootprint(t *testing.T) {
	table := memoryTable(t)
	ts, err := mem.NewShared(2)
	if err != nil {
		t.Fatal(err)
	}
	cluster.Run(t, 2, func(_ context.Context, c *collective.Comm) error {
		for mode, row := range map[string]string{"plain": "plain", "exact": "Exact", "int8": "Compression, each coding", "topk": "Compression, each coding"} {
			n, err := trainer.SharedVectors(c, mode)
			if err != nil {
				return err
			}
			if want := table[row][3]; 4*n != want {
				return fmt.Errorf("%s: %d bytes a parameter are shared, the table has %d", mode, 4*n, want)
			}
		}
		return nil
	}, cluster.Over(ts))
}
