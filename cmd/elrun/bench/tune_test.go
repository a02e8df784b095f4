package bench_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/elrun/elrun/cmd/elrun/bench"
	"github.com/elrun/elrun/collective"
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

// Tune measures each algorithm that can do the call, at every size, and marks one of them as the
// choice of auto. All ranks get the same results.
func TestTune(t *testing.T) {
	for _, c := range []struct {
		name    string
		perHost []int
		want    string // an algorithm that must be measured
	}{{"allreduce", []int{1, 1, 1}, "ring"}, {"allreduce", []int{2, 1}, "two-level"}, {"broadcast", []int{3}, "shm"}, {"scan", []int{1, 1}, "recursive-doubling"}} {
		got := make([][]bench.Result, 3)
		cfg := bench.Config{Collective: c.name, Bytes: []int{4, 5000}, Type: dtype.F32, Op: "sum", Iters: 1}
		over(t, c.perHost, func(ctx context.Context, comm *collective.Comm) error {
			return bench.Tune(ctx, comm, cfg, func(r bench.Result) error {
				r.RSSAnon = 0
				got[comm.Rank()] = append(got[comm.Rank()], r)
				return nil
			})
		})
		measured, auto := make(map[int][]string), make(map[int]int)
		for _, r := range got[0] {
			measured[r.Bytes] = append(measured[r.Bytes], r.Algorithm)
			if r.Auto {
				auto[r.Bytes]++
			}
			if r.Wrong != 0 || r.Collective != c.name {
				t.Errorf("got %+v", r)
			}
		}
		for _, bytes := range cfg.Bytes {
			if !slices.Contains(measured[bytes], c.want) || auto[bytes] != 1 {
				t.Errorf("%s of %d bytes on %v: measured %v, want %s among them; %d choices of auto", c.name, bytes, c.perHost, measured[bytes], c.want, auto[bytes])
			}
		}
		if !slices.Equal(got[0], got[1]) {
			t.Errorf("rank 0 has %+v, rank 1 %+v", got[0], got[1])
		}
	}
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
