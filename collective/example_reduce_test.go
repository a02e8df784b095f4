package collective_test

import (
	"context"
	"fmt"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/trainer/compress"
)

// One rank gets the result.
func ExampleReduce() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		const root = 2
		seen := []int64{int64(100 + c.Rank())} // samples
		if c.Rank() != root {
			return nil, collective.Reduce(ctx, c, nil, seen, collective.Sum[int64], root)
		}
		err := collective.Reduce(ctx, c, seen, seen, collective.Sum[int64], root)
		return seen, err
	})
	// Output: rank 2: [303]
}

// Each rank gets its Chunk of the result, as an optimizer with sharded state needs it.
func ExampleReduceScatter() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		gradient := []float32{1, 2, 3, 4, 5}
		first, end := collective.Chunk(len(gradient), c.Size(), c.Rank())
		mine := make([]float32, end-first)
		err := collective.ReduceScatter(ctx, c, mine, gradient, collective.Average[float32])
		return fmt.Sprintf("%d to %d: %v", first, end, mine), err
	})
	// Output:
	// rank 0: 0 to 2: [1 2]
	// rank 1: 2 to 4: [3 4]
	// rank 2: 4 to 5: [5]
}

// The chunks may have any lengths that all ranks know: here 3, 0 and 2.
func ExampleReduceScatterV() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		gradient := []float32{1, 2, 3, 4, 5}
		counts := []int{3, 0, 2}
		mine := make([]float32, counts[c.Rank()])
		err := collective.ReduceScatterV(ctx, c, mine, gradient, counts, collective.Sum[float32])
		return mine, err
	})
	// Output:
	// rank 0: [3 6 9]
	// rank 1: []
	// rank 2: [12 15]
}

// Rank i gets the sum of ranks 0 to i.
func ExampleScan() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		v := []int64{int64(c.Rank() + 1)}
		err := collective.Scan(ctx, c, v, v, collective.Sum[int64])
		return v, err
	})
	// Output:
	// rank 0: [1]
	// rank 1: [3]
	// rank 2: [6]
}

// Rank i gets the sum of the ranks below it: the offset of its records in a file that all
// ranks write. At rank 0 the vector does not change.
func ExampleExScan() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		records := []int64{int64(10 * (c.Rank() + 1))}
		begin := []int64{0}
		err := collective.ExScan(ctx, c, begin, records, collective.Sum[int64])
		return begin, err
	})
	// Output:
	// rank 0: [0]
	// rank 1: [10]
	// rank 2: [30]
}

// The predefined operations. Logical operations treat every non-zero value as true.
func ExampleOp() {
	operations := []struct {
		name string
		op   collective.Op[int64]
	}{
		{"sum", collective.Sum[int64]},
		{"product", collective.Prod[int64]},
		{"least", collective.Min[int64]},
		{"greatest", collective.Max[int64]},
		{"average", collective.Average[int64]},
		{"and", collective.And[int64]},
		{"or", collective.Or[int64]},
		{"exclusive or", collective.Xor[int64]},
		{"bits in both", collective.BitAnd[int64]},
		{"bits in either", collective.BitOr[int64]},
		{"bits in one", collective.BitXor[int64]},
	}
	group(2, func(ctx context.Context, c *collective.Comm) (any, error) {
		v := [][]int64{{3, 2}, {6, 0}}[c.Rank()]
		for _, o := range operations {
			got := make([]int64, len(v))
			if err := collective.AllReduce(ctx, c, got, v, o.op); err != nil {
				return nil, err
			}
			if c.Rank() == 0 {
				fmt.Println(o.name, got)
			}
		}
		return nil, nil
	})
	// Output:
	// sum [9 2]
	// product [18 0]
	// least [3 0]
	// greatest [6 2]
	// average [4 1]
	// and [1 0]
	// or [1 1]
	// exclusive or [0 1]
	// bits in both [2 0]
	// bits in either [7 2]
	// bits in one [5 2]
}

// A user's own reduction that does not commute: it concatenates the digits of two numbers.
func ExampleNewOp() {
	concat := collective.NewOp("concat", false, func(dst, a, b []int64) {
		for i := range dst {
			shift := int64(10)
			for shift <= b[i] {
				shift *= 10
			}
			dst[i] = a[i]*shift + b[i]
		}
	})
	group(4, func(ctx context.Context, c *collective.Comm) (any, error) {
		got := []int64{int64(c.Rank() + 1)}
		err := collective.AllReduce(ctx, c, got, got, concat)
		return got, err
	})
	// Output:
	// rank 0: [1234]
	// rank 1: [1234]
	// rank 2: [1234]
	// rank 3: [1234]
}

// Vectors are sent in a coding of half the size, which rounds. The rounding error of a rank's
// vector stays at the rank and is added to its next vector (error feedback), so nothing is lost
// permanently.
func ExampleAllReduceCoded() {
	coding, err := compress.Parse("bf16")
	if err != nil {
		fmt.Println(err)
		return
	}
	group(2, func(ctx context.Context, c *collective.Comm) (any, error) {
		const gradient = 1 + 1.0/512 // in bf16 it is 1
		var total float32
		v, sum := []float32{0}, make([]float32, 1)
		for range 3 {
			v[0] += gradient
			if err := collective.AllReduceCoded(ctx, c, sum, v, coding); err != nil {
				return nil, err
			}
			total += sum[0]
		}
		err := collective.AllReduce(ctx, c, v, v, collective.Sum[float32])
		return fmt.Sprintf("%v, and %v is lacking of %v", total, v[0], 2*3*gradient), err
	})
	// Output:
	// rank 0: 6.015625, and -0.00390625 is lacking of 6.01171875
	// rank 1: 6.015625, and -0.00390625 is lacking of 6.01171875
}

// A non-blocking coded call runs while its caller computes.
func ExampleIAllReduceCoded() {
	coding, err := compress.Parse("fp16")
	if err != nil {
		fmt.Println(err)
		return
	}
	group(2, func(ctx context.Context, c *collective.Comm) (any, error) {
		v, sum := []float32{1, 0.5, -3}, make([]float32, 3)
		h := collective.IAllReduceCoded(ctx, c, sum, v, coding)
		err := h.Wait(ctx)
		return sum, err
	})
	// Output:
	// rank 0: [2 1 -6]
	// rank 1: [2 1 -6]
}

// The rank with the least loss and the rank with the greatest: vectors of pairs of a value and its index.
func ExampleMinLoc() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		loss := []float64{0.5, 0.25, 0.75}[c.Rank()]
		best, worst := []float64{loss, float64(c.Rank())}, []float64{loss, float64(c.Rank())}
		if err := collective.AllReduce(ctx, c, best, best, collective.MinLoc[float64]); err != nil {
			return nil, err
		}
		err := collective.AllReduce(ctx, c, worst, worst, collective.MaxLoc[float64])
		return fmt.Sprint(best, worst), err
	})
	// Output:
	// rank 0: [0.25 1] [0.75 2]
	// rank 1: [0.25 1] [0.75 2]
	// rank 2: [0.25 1] [0.75 2]
}
