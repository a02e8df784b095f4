//go:build !race

package collective_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/internal/shm"
	"github.com/elrun/elrun/testing/cluster"
)

// racing says that the tests run under the race detector. The detector drops pooled memory
// at random, so allocations are measured without it.
const racing = false

// usage is the number of objects and bytes that one call at all ranks allocates on the
// heap.
type usage struct{ objects, bytes float64 }

// allocsPerCall measures reps calls at n ranks, after the same number of calls to fill the pools,
// and returns the minimum of a few such rounds. The calls run in virtual time, so the watchdog,
// which allocates as time passes, is idle while a call makes progress. After each round meet makes
// two barriers; their few allocations do not depend on the length.
func allocsPerCall(t *testing.T, n, reps int, w way, length int) usage {
	const rounds = 3
	var state [rounds + 1]runtime.MemStats
	synctest.Test(t, func(t *testing.T) {
		cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error {
			src, dst := make([]float32, length), make([]float32, length)
			for i := range state {
				for range reps {
					if err := reduceOnce(ctx, c.With(collective.CallOptions{Algorithm: w.algorithm}), w.kind, dst, src); err != nil {
						return err
					}
				}
				if err := meet(ctx, c, &state[i]); err != nil {
					return err
				}
			}
			return nil
		})
	})
	least := usage{math.Inf(1), math.Inf(1)}
	for i, before := range state[:rounds] {
		end := state[i+1]
		least.objects = min(least.objects, float64(end.Mallocs-before.Mallocs)/float64(reps))
		least.bytes = min(least.bytes, float64(end.TotalAlloc-before.TotalAlloc)/float64(reps))
	}
	return least
}

// meet reads the state of the heap at rank 0, while the other ranks wait.
func meet(ctx context.Context, c *collective.Comm, m *runtime.MemStats) error {
	if err := collective.Barrier(ctx, c); err != nil {
		return err
	}
	if c.Rank() == 0 {
		runtime.ReadMemStats(m)
	}
	return collective.Barrier(ctx, c)
}

func reduceOnce(ctx context.Context, c *collective.Comm, kind string, dst, src []float32) error {
	switch kind {
	case "allreduce":
		return collective.AllReduce(ctx, c, dst, src, collective.Sum[float32])
	case "reduce":
		return collective.Reduce(ctx, c, dst, src, collective.Sum[float32], 0)
	case "reducescatter":
		first, end := collective.Chunk(len(src), c.Size(), c.Rank())
		return collective.ReduceScatter(ctx, c, dst[first:end], src, collective.Sum[float32])
	case "reducescatterv":
		counts, first, end := cut(len(src), c.Size(), c.Rank())
		return collective.ReduceScatterV(ctx, c, dst[first:end], src, counts, collective.Sum[float32])
	case "scan":
		return collective.Scan(ctx, c, dst, src, collective.Sum[float32])
	}
	return fmt.Errorf("unknown kind %q", kind)
}

// In steady state a call allocates no more for a long vector than for a short one: its
// memory comes from pools, except one segment per rank of a ring. The garbage collector is
// off, as it empties pools.
func TestAllocationsDoNotGrow(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, r := range reducing()[:5] {
		for _, a := range r.algorithms[1:] {
			w := way{r.kind, a}
			short := allocsPerCall(t, 3, 10, w, 1000)
			long := allocsPerCall(t, 3, 10, w, 1_000_000)
			t.Logf("%s by %v: %.1f objects of %.0f bytes for 1,000 elements, %.1f of %.0f for 1,000,000",
				w.kind, a, short.objects, short.bytes, long.objects, long.bytes)
			if long.objects > 1.2*short.objects+10 {
				t.Errorf("%s by %v: %.1f allocations for 1,000 elements, %.1f for 1,000,000", w.kind, a, short.objects, long.objects)
			}
			// A vector of each rank is 4 MB.
			if long.bytes > 3*256<<10+2e6 {
				t.Errorf("%s by %v: %.0f bytes for 1,000 elements, %.0f for 1,000,000", w.kind, a, short.bytes, long.bytes)
			}
		}
	}
}

// In shared memory a call leaves no garbage except the two functions of its reduction: to collect
// garbage takes longer than a short call, and every rank waits for the slowest one.
func TestNoGarbageInMemory(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const ranks, reps = 2, 1000
	const watching = 2000 // upper bound of the objects that the watchdogs allocate in a second
	for _, bytes := range []int{4, shm.Inline, 1 << 20} {
		for _, shared := range []bool{false, true} {
			overShared(t, ranks, func(ctx context.Context, c *collective.Comm) error {
				dst, src, err := allocated(c, bytes/8+1, shared)
				if err != nil {
					return err
				}
				begun := time.Now()
				var before, after runtime.MemStats
				for i, m := range []*runtime.MemStats{&before, &after} {
					for range i * reps {
						if err := collective.AllReduce(ctx, c, dst, src, collective.Sum[int64]); err != nil {
							return err
						}
					}
					if err := meet(ctx, c, m); err != nil {
						return err
					}
				}
				if c.Rank() != 0 {
					return nil
				}
				// The watchdogs allocate at intervals, so the bound grows with the duration of the
				// calls.
				watch := time.Since(begun).Seconds() * watching
				if all := float64(after.Mallocs - before.Mallocs); all > 2.5*reps*ranks+watch {
					t.Errorf("%d bytes, shared %v: a call takes %.2f objects", bytes, shared, all/reps/ranks)
				}
				return nil
			})
		}
	}
}

func BenchmarkAllReduce(b *testing.B) {
	for _, a := range reducing()[0].algorithms[1:] {
		for _, length := range []int{1000, 1_000_000, 4_000_000} {
			b.Run(fmt.Sprintf("%v/%d", a, length), func(b *testing.B) {
				b.SetBytes(int64(4 * length))
				b.ReportAllocs()
				cluster.Run(b, 4, func(ctx context.Context, c *collective.Comm) error {
					v, out := make([]float32, length), make([]float32, length)
					for range b.N {
						if err := reduceOnce(ctx, c.With(collective.CallOptions{Algorithm: a}), "allreduce", out, v); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}
