package collective_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/transport/mem"
)

// group calls f at n ranks, each with a communicator in memory. In a program the
// communicator comes from a session of an elastic group.
func group(n int, f func(ctx context.Context, c *collective.Comm) error) {
	var all sync.WaitGroup
	for rank, t := range mem.New(n) {
		all.Go(func() {
			c, err := collective.New(t, rank, n, collective.Options{})
			if err == nil {
				err = f(context.Background(), c)
				_ = c.Close() // in memory it has nothing to report
			}
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	all.Wait()
}

// Every rank gets the sum of all.
func ExampleAllReduce() {
	group(3, func(ctx context.Context, c *collective.Comm) error {
		v := []float32{float32(c.Rank()), 10}
		if err := collective.AllReduce(ctx, c, v, v, collective.Sum[float32]); err != nil {
			return err
		}
		if c.Rank() == 2 {
			fmt.Println(v)
		}
		return nil
	})
	// Output: [3 30]
}

// A reduction of one's own that does not commute: it writes one number behind the
// other.
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
	group(4, func(ctx context.Context, c *collective.Comm) error {
		got := make([]int64, 1)
		err := collective.Reduce(ctx, c, got, []int64{int64(c.Rank() + 1)}, concat, 3)
		if c.Rank() == 3 && err == nil {
			fmt.Println(got[0])
		}
		return err
	})
	// Output: 1234
}

// A call goes on while its caller computes.
func ExampleIAllReduce() {
	group(2, func(ctx context.Context, c *collective.Comm) error {
		bucket := []int64{1, 2, 3}
		h := collective.IAllReduce(ctx, c, bucket, bucket, collective.Sum[int64])
		work := 6 * 7 // the next bucket's gradient
		if err := h.Wait(ctx); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(work, bucket)
		}
		return nil
	})
	// Output: 42 [2 4 6]
}

// Ranks of one host make a communicator of their own.
func ExampleSplit() {
	group(4, func(ctx context.Context, c *collective.Comm) error {
		host := c.Rank() / 2
		local, err := collective.Split(ctx, c, host, c.Rank())
		if err != nil {
			return err
		}
		sum := []int32{int32(c.Rank())}
		if err := collective.AllReduce(ctx, local, sum, sum, collective.Sum[int32]); err != nil {
			return err
		}
		if c.Rank() == 3 {
			fmt.Println("rank", local.Rank(), "of", local.Size(), "sum", sum[0])
		}
		return nil
	})
	// Output: rank 1 of 2 sum 5
}
