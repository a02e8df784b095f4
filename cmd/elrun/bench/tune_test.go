package bench_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/cmd/elrun/bench"
	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/transport/mem"
)

// over runs f on ranks in memory. perHost has the number of ranks on each host; ranks of one host share memory.
func over(t *testing.T, perHost []int, f func(ctx context.Context, c *collective.Comm) error) {
	t.Helper()
	all, err := mem.NewShared(perHost...)
	if err != nil {
		t.Fatal(err)
	}
	cluster.Run(t, len(all), func(ctx context.Context, c *collective.Comm) error {
		return errors.Join(c.Calibrate(ctx), f(ctx, c))
	}, cluster.Over(all))
}

// Tune measures each algorithm that can do the call, at every size, and auto's choice is one of
// these algorithms. All ranks get the same result.
func TestTune(t *testing.T) {
	for _, c := range []struct {
		name    string
		perHost []int
		want    string // an algorithm that must be measured
	}{{"allreduce", []int{1, 1, 1}, "ring"}, {"allreduce", []int{2, 1}, "two-level"}, {"broadcast", []int{3}, "shm"}, {"scan", []int{1, 1}, "recursive-doubling"}} {
		got := make([][]bench.Tuned, 3)
		cfg := bench.Config{Collective: c.name, Bytes: []int{4, 5000}, Type: dtype.F32, Op: "sum", Iters: 1}
		over(t, c.perHost, func(ctx context.Context, comm *collective.Comm) error {
			return bench.Tune(ctx, comm, cfg, func(one bench.Tuned) error {
				got[comm.Rank()] = append(got[comm.Rank()], one)
				return nil
			})
		})
		for i, one := range got[0] {
			var names []string
			for _, taken := range one.Times {
				names = append(names, taken.Algorithm)
			}
			if !slices.Contains(names, c.want) || !slices.Contains(names, one.Auto) || !slices.Contains(names, one.Best) {
				t.Errorf("%s on %v: auto %s and best %s of %v, want %s among them", c.name, c.perHost, one.Auto, one.Best, names, c.want)
			}
			if one.Bytes != cfg.Bytes[i] || one.Wrong != 0 || one.Ratio < 1 || one.Collective != c.name {
				t.Errorf("got %+v", one)
			}
			if other := got[1][i]; other.Best != one.Best || other.Ratio != one.Ratio {
				t.Errorf("rank 0 has %+v, rank 1 %+v", one, other)
			}
		}
		if len(got[0]) != len(cfg.Bytes) {
			t.Errorf("%d sizes, want %d", len(got[0]), len(cfg.Bytes))
		}
	}
}

// The text of Crossovers agrees with Comm.Choice for the smallest and the largest size.
func TestCrossovers(t *testing.T) {
	over(t, []int{1, 1, 1, 1}, func(_ context.Context, c *collective.Comm) error {
		text, err := bench.Crossovers(c, "allreduce")
		if err != nil || c.Rank() > 0 {
			return err
		}
		small, err := c.Choice(transport.KindAllReduce, 4, true)
		if err != nil {
			return err
		}
		large, err := c.Choice(transport.KindAllReduce, 1<<30, true)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(text, small.String()+" from 4 bytes") || !strings.Contains(text, large.String()+" from ") {
			t.Errorf("%v for 4 bytes and %v for 1 GiB, printed as %q", small, large, text)
		}
		return nil
	})
}

// Vectors from shared memory give the same results, and are freed afterwards: the next vector
// gets the same address as the first one.
func TestAlloc(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		for _, name := range []string{"allreduce", "reducescatter", "allgather"} {
			cfg := bench.Config{Collective: name, Bytes: []int{4, 1000, 1 << 20}, Type: dtype.F32, Op: "sum", Iters: 1, Alloc: true, InPlace: inPlace}
			over(t, []int{2}, func(ctx context.Context, c *collective.Comm) error {
				before, err := place(c)
				if err != nil {
					return err
				}
				err = bench.Run(ctx, c, cfg, func(r bench.Result) error {
					if r.Wrong != 0 {
						t.Errorf("got %+v", r)
					}
					return nil
				})
				after, failed := place(c)
				if before != after {
					t.Errorf("%s, in place %v: vectors were kept", name, inPlace)
				}
				return errors.Join(err, failed)
			})
		}
	}
}

// place returns the address of a vector from shared memory.
func place(c *collective.Comm) (*float32, error) {
	v, err := collective.Alloc[float32](c, 1)
	if err != nil || !c.SharesMemory() {
		return nil, errors.Join(err, errors.New("no shared memory"))
	}
	return &v[0], collective.Free(c, v)
}
