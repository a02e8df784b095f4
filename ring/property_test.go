package ring

import (
	"context"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// All calls are right for any number and order of ranks, and for any lengths of chunks, segments and buffers.
func TestAnyShape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bounds := drawBounds(t)
		size, n := len(bounds)-1, bounds[len(bounds)-1]
		depth := rapid.IntRange(0, 3).Draw(t, "depth")
		segment := rapid.IntRange(1, 30).Draw(t, "segment")
		rings := newRings(size, depth, segment)
		if rapid.Bool().Draw(t, "reordered") {
			reorder(rings, rapid.Permutation(Chunks(size, size)[:size]).Draw(t, "order"))
		}
		all := inputs[int64](size, n)
		testAllReduce(t, rings, all, Sum[int64]())
		testReduceScatter(t, rings, all, bounds, Max[int64]())
		testAllGather[int64](t, rings, bounds)
		testBroadcast[int64](t, rings, n, rapid.IntRange(0, size-1).Draw(t, "root"))
	})
}

// All ranks get the same bits, even if rounding makes a sum depend on the order. The bits equal the
// result of chunkwise, which adds each chunk in the order of the ring.
func TestSameBitsEverywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 5).Draw(t, "size")
		n := rapid.IntRange(0, 12).Draw(t, "n")
		all := make([][]float32, size)
		for rank := range all {
			all[rank] = rapid.SliceOfN(rapid.Float32(), n, n).Draw(t, "v")
		}
		want := chunkwise(all)
		errs := everyRank(newRings(size, 0, 8), func(ctx context.Context, r Ring) error {
			dst := make([]float32, n)
			if err := AllReduce(ctx, r, dst, all[r.Rank], Sum[float32]()); err != nil {
				return err
			}
			for i := range dst {
				if math.Float32bits(dst[i]) != math.Float32bits(want[i]) {
					return fmt.Errorf("element %d is %v, want %v", i, dst[i], want[i])
				}
			}
			return nil
		})
		for rank, err := range errs {
			if err != nil {
				t.Fatalf("rank %d of %d: %v", rank, size, err)
			}
		}
	})
}

// chunkwise is a slow reference for the sum in a ring: it adds chunk c in the order of ranks c,
// c+1, ... around the ring.
func chunkwise(all [][]float32) []float32 {
	size := len(all)
	out := make([]float32, len(all[0]))
	bounds := Chunks(len(out), size)
	for c := range size {
		for i := bounds[c]; i < bounds[c+1]; i++ {
			out[i] = all[c][i]
			for k := 1; k < size; k++ {
				out[i] += all[(c+k)%size][i]
			}
		}
	}
	return out
}
