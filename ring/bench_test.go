package ring

import (
	"context"
	"fmt"
	"testing"
)

// The number of allocations in a call depends neither on the number of elements nor on the number of segments.
func TestAllocations(t *testing.T) {
	short, long := allocations(t, 1e3), allocations(t, 1e6)
	// The counts are for the whole program. The runtime adds a few allocations for waiting
	// goroutines; one allocation per segment would add more than 1000.
	if long > short+8 {
		t.Errorf("%v allocations for 1000 elements, %v for a million", short, long)
	}
	if short > 4*30 {
		t.Errorf("%v allocations at 4 ranks", short)
	}
}

// allocations returns the number of allocations in an all-reduce of n elements, at four ranks
// together.
func allocations(t *testing.T, n int) float64 {
	rings := newRings(4, 0, 1000)
	vectors := inputs[float32](len(rings), n)
	return testing.AllocsPerRun(5, func() {
		mustEveryRank(t, rings, func(ctx context.Context, r Ring) error {
			return AllReduce(ctx, r, vectors[r.Rank], vectors[r.Rank], Max[float32]())
		})
	})
}

// BenchmarkAllReduce measures all-reduce over links in memory, by the number of ranks and the bytes
// of a vector.
func BenchmarkAllReduce(b *testing.B) {
	for _, size := range []int{2, 4, 8} {
		for _, n := range []int{1 << 8, 1 << 14, 1 << 20, 1 << 24} {
			b.Run(fmt.Sprintf("ranks=%d/bytes=%d", size, 4*n), func(b *testing.B) {
				rings := newRings(size, 0, 256<<10)
				vectors := make([][]float32, size)
				for i := range vectors {
					vectors[i] = make([]float32, n)
				}
				b.SetBytes(int64(4 * n))
				b.ReportAllocs()
				for b.Loop() {
					mustEveryRank(b, rings, func(ctx context.Context, r Ring) error {
						return AllReduce(ctx, r, vectors[r.Rank], vectors[r.Rank], Sum[float32]())
					})
				}
			})
		}
	}
}
