package bench_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/elrun/elrun/cmd/elrun/bench"
	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/testing/cluster"
)

// measure runs cfg on n in-memory ranks and returns the results of rank 0.
func measure(t *testing.T, n int, cfg bench.Config) []bench.Result {
	t.Helper()
	var out []bench.Result
	cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error {
		return bench.Run(ctx, c, cfg, func(r bench.Result) error {
			if c.Rank() == 0 {
				out = append(out, r)
			}
			return nil
		})
	})
	return out
}

// checkAll fails the test if a result does not agree with cfg.
func checkAll(t *testing.T, n int, cfg bench.Config) {
	t.Helper()
	got := measure(t, n, cfg)
	if len(got) != len(cfg.Bytes) && cfg.Collective != "barrier" {
		t.Fatalf("%d results, want %d", len(got), len(cfg.Bytes))
	}
	for _, r := range got {
		if r.Wrong != 0 || r.N != n || r.Iters != cfg.Iters || r.Collective != cfg.Collective {
			t.Errorf("n=%d %+v: got %+v", n, cfg, r)
		}
		if r.Min > r.P50 || r.P50 > r.P99 || r.Min > r.Mean || r.Mean > r.P99 && r.Iters == 1 {
			t.Errorf("times out of order: %+v", r)
		}
	}
}

func TestCollectives(t *testing.T) {
	for _, name := range bench.Collectives() {
		for _, n := range []int{1, 2, 3, 4, 5} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				checkAll(t, n, bench.Config{Collective: name, Bytes: []int{1, 4, 100, 5000}, Type: dtype.F32, Op: "sum", Iters: 2})
			})
		}
	}
}

func TestInPlace(t *testing.T) {
	for _, name := range bench.Collectives() {
		t.Run(name, func(t *testing.T) {
			cfg := bench.Config{Collective: name, Bytes: []int{4, 100}, Type: dtype.Int32, Op: "sum", Iters: 2, InPlace: true}
			if name != "alltoall" && name != "sendrecv" {
				checkAll(t, 3, cfg)
				return
			}
			for _, err := range cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
				return bench.Run(ctx, c, cfg, nil)
			}, cluster.MayFail()) {
				if err == nil || !strings.Contains(err.Error(), "in place") {
					t.Errorf("got %v, want an error about in place", err)
				}
			}
		})
	}
}

func TestTypesAndOps(t *testing.T) {
	for _, typ := range dtype.Types() {
		ops := []string{"sum", "prod", "min", "max", "average", "and", "or", "xor"}
		if typ <= dtype.Uint64 {
			ops = append(ops, "bitand", "bitor", "bitxor")
		}
		for _, op := range ops {
			t.Run(fmt.Sprintf("%v/%s", typ, op), func(t *testing.T) {
				for _, name := range []string{"allreduce", "scan", "exscan"} {
					checkAll(t, 3, bench.Config{Collective: name, Bytes: []int{1, 3000}, Type: typ, Op: op, Iters: 2})
				}
			})
		}
	}
}

func TestAlgorithms(t *testing.T) {
	for _, a := range []collective.Algorithm{collective.Ring, collective.RecursiveDoubling, collective.Rabenseifner} {
		cfg := bench.Config{Collective: "allreduce", Bytes: []int{4, 4096}, Type: dtype.F64, Op: "sum", Algorithm: a, Iters: 2}
		checkAll(t, 4, cfg)
		if got := measure(t, 4, cfg)[0].Algorithm; got != a.String() {
			t.Errorf("algorithm %s, want %v", got, a)
		}
	}
}

// For every call the result names the algorithm that auto has chosen.
func TestChosenAlgorithm(t *testing.T) {
	for _, name := range bench.Collectives() {
		r := measure(t, 4, bench.Config{Collective: name, Bytes: []int{4}, Type: dtype.F32, Op: "sum", Iters: 1})[0]
		if a, err := collective.ParseAlgorithm(r.Algorithm); err != nil || a == collective.Auto {
			t.Errorf("%s: algorithm %q, %v", name, r.Algorithm, err)
		}
	}
}

func TestBadConfig(t *testing.T) {
	for _, cfg := range []bench.Config{
		{Collective: "nonsense", Bytes: []int{4}, Type: dtype.F32, Op: "sum"},
		{Collective: "allreduce", Bytes: []int{4}, Type: dtype.F32, Op: "bitand"},
		{Collective: "allreduce", Bytes: []int{4}, Type: dtype.Int8, Op: "nonsense"},
		{Collective: "allreduce", Bytes: []int{4}, Op: "sum"},
	} {
		for _, err := range cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
			return bench.Run(ctx, c, cfg, nil)
		}, cluster.MayFail()) {
			if err == nil {
				t.Errorf("%+v: no error", cfg)
			}
		}
	}
}

func TestReportError(t *testing.T) {
	stop := errors.New("stop")
	var once sync.Once
	errs := cluster.Run(t, 1, func(ctx context.Context, c *collective.Comm) error {
		cfg := bench.Config{Collective: "barrier", Bytes: []int{4, 8}, Type: dtype.F32, Op: "sum", Iters: 1}
		return bench.Run(ctx, c, cfg, func(bench.Result) (err error) {
			once.Do(func() { err = stop })
			return err
		})
	}, cluster.MayFail())
	if !errors.Is(errs[0], stop) {
		t.Errorf("got %v, want %v", errs[0], stop)
	}
}

func TestFactors(t *testing.T) {
	for name, want := range map[string]float64{"allreduce": 1.5, "reducescatter": 0.75, "allgather": 0.75,
		"broadcast": 1, "reduce": 1, "gather": 0.75, "scatter": 0.75, "alltoall": 0.75, "sendrecv": 1} {
		r := measure(t, 4, bench.Config{Collective: name, Bytes: []int{4096}, Type: dtype.F32, Op: "sum", Iters: 1})[0]
		if got := r.BusBW / r.AlgBW; got < want-1e-9 || got > want+1e-9 {
			t.Errorf("%s: factor %v, want %v", name, got, want)
		}
		if r.Bytes != 4096 {
			t.Errorf("%s: %d bytes, want 4096", name, r.Bytes)
		}
	}
}

// The speed of each link is measured, and all ranks receive all speeds.
func TestLinks(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error {
			speeds, err := bench.Links(ctx, c)
			if err != nil {
				return err
			}
			if len(speeds) != n && n > 1 {
				return fmt.Errorf("%d speeds of %d links", len(speeds), n)
			}
			for from, speed := range speeds {
				if speed <= 0 {
					return fmt.Errorf("link from rank %d has speed %v", from, speed)
				}
			}
			return nil
		})
	}
}

// Corrupted data causes an error that reports the corruption, at all ranks.
func TestLinksChecked(t *testing.T) {
	cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
		if _, err := bench.BadLink(ctx, c); err == nil || !strings.Contains(err.Error(), "arrived with other values") {
			return fmt.Errorf("error %v", err)
		}
		return nil
	})
}
