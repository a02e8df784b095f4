package collective_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/elrun/elrun/collective"
)

// Each rank has a vector, and all ranks get all vectors in the order of ranks.
func ExampleAllGather() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		mine := []int32{int32(c.Rank()), int32(c.Rank() * c.Rank())}
		all := make([]int32, len(mine)*c.Size())
		err := collective.AllGather(ctx, c, all, mine)
		return all, err
	})
	// Output:
	// rank 0: [0 0 1 1 2 4]
	// rank 1: [0 0 1 1 2 4]
	// rank 2: [0 0 1 1 2 4]
}

// The vectors may have different lengths, which all ranks know: here 0, 1 and 2.
func ExampleAllGatherV() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		counts := []int{0, 1, 2}
		mine := []uint8{7, 8}[:c.Rank()]
		all := make([]uint8, 3)
		err := collective.AllGatherV(ctx, c, all, mine, counts)
		return all, err
	})
	// Output:
	// rank 0: [7 7 8]
	// rank 1: [7 7 8]
	// rank 2: [7 7 8]
}

// One rank gets the vectors of all ranks.
func ExampleGather() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		const root = 1
		loss := []float64{float64(c.Rank()) / 2}
		if c.Rank() != root {
			return nil, collective.Gather(ctx, c, nil, loss, root)
		}
		losses := make([]float64, c.Size())
		err := collective.Gather(ctx, c, losses, loss, root)
		return losses, err
	})
	// Output: rank 1: [0 0.5 1]
}

// One rank gets vectors of different lengths: a result for each sample of each rank.
func ExampleGatherV() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		const root = 0
		counts := []int{2, 0, 1}
		mine := make([]int32, counts[c.Rank()])
		for i := range mine {
			mine[i] = int32(10*c.Rank() + i)
		}
		if c.Rank() != root {
			return nil, collective.GatherV(ctx, c, nil, mine, counts, root)
		}
		all := make([]int32, 3)
		err := collective.GatherV(ctx, c, all, mine, counts, root)
		return all, err
	})
	// Output: rank 0: [0 1 20]
}

// One rank has a vector, and each rank gets an equal part of it.
func ExampleScatter() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		const root = 0
		var all []int32
		if c.Rank() == root {
			all = []int32{1, 2, 3, 4, 5, 6}
		}
		part := make([]int32, 2)
		err := collective.Scatter(ctx, c, part, all, root)
		return part, err
	})
	// Output:
	// rank 0: [1 2]
	// rank 1: [3 4]
	// rank 2: [5 6]
}

// The parts may have different lengths: here the lengths of Chunk, which differ by at most
// one.
func ExampleScatterV() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		const root, length = 2, 5
		counts := make([]int, c.Size())
		for rank := range counts {
			first, end := collective.Chunk(length, c.Size(), rank)
			counts[rank] = end - first
		}
		var all []int32
		if c.Rank() == root {
			all = []int32{1, 2, 3, 4, 5}
		}
		part := make([]int32, counts[c.Rank()])
		err := collective.ScatterV(ctx, c, part, all, counts, root)
		return part, err
	})
	// Output:
	// rank 0: [1 2]
	// rank 1: [3 4]
	// rank 2: [5]
}

// Rank i gets part i of every rank's vector: the transpose of a matrix with one row per
// rank.
func ExampleAllToAll() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		row := []int32{0, 1, 2}
		for i := range row {
			row[i] += 10 * int32(c.Rank())
		}
		column := make([]int32, 3)
		err := collective.AllToAll(ctx, c, column, row)
		return column, err
	})
	// Output:
	// rank 0: [0 10 20]
	// rank 1: [1 11 21]
	// rank 2: [2 12 22]
}

// Each rank has words for the other ranks. An AllToAll of the counts tells every rank how many words it gets from each rank.
func ExampleAllToAllV() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		words := []int32{10, 20, 21, 30}[c.Rank():]
		sends := [][]int{{1, 2, 1}, {0, 2, 1}, {1, 0, 1}}[c.Rank()] // by receiver
		receives := make([]int, c.Size())
		if err := collective.AllToAll(ctx, c, receives, sends); err != nil {
			return nil, err
		}
		total := 0
		for _, n := range receives {
			total += n
		}
		dst := make([]int32, total)
		err := collective.AllToAllV(ctx, c, dst, words, receives, sends)
		return fmt.Sprint(receives, dst), err
	})
	// Output:
	// rank 0: [1 0 1] [10 21]
	// rank 1: [2 2 0] [20 21 20 21]
	// rank 2: [1 1 1] [30 30 30]
}

// Several calls with parts of different lengths are in progress at the same time.
func ExampleIGatherV() {
	group(2, func(ctx context.Context, c *collective.Comm) (any, error) {
		counts := []int{1, 2}
		n := counts[c.Rank()]
		src, dst := []int32{1, 2, 3}, make([]int32, 3)
		part, all := make([]int32, n), make([]int32, 3)
		gathered := collective.IGatherV(ctx, c, dst, src[:n], counts, 0)
		scattered := collective.IScatterV(ctx, c, part, src, counts, 0)
		everywhere := collective.IAllGatherV(ctx, c, all, src[:n], counts)
		for _, h := range []*collective.Handle{gathered, scattered, everywhere} {
			if err := h.Wait(ctx); err != nil {
				return nil, err
			}
		}
		return fmt.Sprint(part, all), nil
	})
	// Output:
	// rank 0: [1] [1 1 2]
	// rank 1: [2 3] [1 1 2]
}

// Both calls are in progress at the same time. Rank 0 has all elements and gives one of them to rank 1.
func ExampleIAllToAllV() {
	group(2, func(ctx context.Context, c *collective.Comm) (any, error) {
		src := [][]int{{5, 6, 7}, {}}[c.Rank()]
		sends := [][]int{{2, 1}, {0, 0}}[c.Rank()]
		receives := [][]int{{2, 0}, {1, 0}}[c.Rank()]
		dst, mine := make([]int, 2-c.Rank()), make([]int, 3*c.Rank())
		sent := collective.IAllToAllV(ctx, c, dst, src, receives, sends)
		summed := collective.IReduceScatterV(ctx, c, mine, []int{1, 2, 3}, []int{0, 3}, collective.Sum[int])
		err := errors.Join(sent.Wait(ctx), summed.Wait(ctx))
		return fmt.Sprint(dst, mine), err
	})
	// Output:
	// rank 0: [5 6] []
	// rank 1: [7] [2 4 6]
}
