package collective_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/transport/mem"
)

// group calls f at n ranks, each with a communicator in memory, and prints the results in the order
// of ranks, except nil results. A program gets its communicator from the session of an elastic
// group, a test from testing/cluster.
func group(n int, f func(ctx context.Context, c *collective.Comm) (any, error)) {
	results := make([]any, n)
	var all sync.WaitGroup
	for rank, t := range mem.New(n) {
		all.Go(func() {
			c, err := collective.New(t, rank, n, collective.Options{})
			if err == nil {
				results[rank], err = f(context.Background(), c)
				_ = c.Close() // over a transport in memory it returns no error
			}
			if err != nil {
				results[rank] = err
			}
		})
	}
	all.Wait()
	for rank, r := range results {
		if r != nil {
			fmt.Printf("rank %d: %v\n", rank, r)
		}
	}
}

// Every rank gets the sum of all vectors. dst and src may be one slice.
func ExampleAllReduce() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		v := []float32{float32(c.Rank()), 10}
		err := collective.AllReduce(ctx, c, v, v, collective.Sum[float32])
		return v, err
	})
	// Output:
	// rank 0: [3 30]
	// rank 1: [3 30]
	// rank 2: [3 30]
}

// A non-blocking call runs while its caller computes.
func ExampleIAllReduce() {
	group(2, func(ctx context.Context, c *collective.Comm) (any, error) {
		bucket := []int64{1, 2, 3}
		h := collective.IAllReduce(ctx, c, bucket, bucket, collective.Sum[int64])
		work := 6 * 7 // the next bucket's gradient
		err := h.Wait(ctx)
		return fmt.Sprint(work, bucket), err
	})
	// Output:
	// rank 0: 42 [2 4 6]
	// rank 1: 42 [2 4 6]
}

// All ranks get the settings of the root.
func ExampleBroadcast() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		settings := make([]float64, 2)
		if c.Rank() == 1 {
			settings = []float64{0.1, 64}
		}
		err := collective.Broadcast(ctx, c, settings, 1)
		return settings, err
	})
	// Output:
	// rank 0: [0.1 64]
	// rank 1: [0.1 64]
	// rank 2: [0.1 64]
}

// No rank reads a file before rank 0 has written it.
func ExampleBarrier() {
	var file string
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		if c.Rank() == 0 {
			file = "written"
		}
		err := collective.Barrier(ctx, c)
		return file, err
	})
	// Output:
	// rank 0: written
	// rank 1: written
	// rank 2: written
}

// Each rank sends a message to the next rank. Each rank posts its receive before it sends, so the
// ring of Sends cannot deadlock.
func ExampleSend() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		const tag = 1
		next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		got := make([]int32, 1)
		h := collective.IRecv(ctx, c, before, tag, got)
		if err := collective.Send(ctx, c, next, tag, []int32{int32(c.Rank())}); err != nil {
			return nil, err
		}
		err := h.Wait(ctx)
		return got, err
	})
	// Output:
	// rank 0: [2]
	// rank 1: [0]
	// rank 2: [1]
}

// Rank 0 starts two Sends at once. Messages of one tag arrive in the order in which they were sent.
func ExampleRecv() {
	group(2, func(ctx context.Context, c *collective.Comm) (any, error) {
		const tag = 7
		if c.Rank() == 0 {
			first := collective.ISend(ctx, c, 1, tag, []float64{1, 2})
			second := collective.ISend(ctx, c, 1, tag, []float64{3})
			if err := first.Wait(ctx); err != nil {
				return nil, err
			}
			return nil, second.Wait(ctx)
		}
		two, one := make([]float64, 2), make([]float64, 1)
		if err := collective.Recv(ctx, c, 0, tag, two); err != nil {
			return nil, err
		}
		err := collective.Recv(ctx, c, 0, tag, one)
		return fmt.Sprint(two, one), err
	})
	// Output: rank 1: [1 2] [3]
}

// The non-blocking forms of calls have names that begin with I. Several calls may be in progress.
// All ranks must start them in the same order.
func ExampleHandle() {
	group(2, func(ctx context.Context, c *collective.Comm) (any, error) {
		mine := []int64{int64(c.Rank() + 1), int64(10 * (c.Rank() + 1))} // 1 10 and 2 20
		var (
			reduced, below, upTo = make([]int64, 2), make([]int64, 2), make([]int64, 2)
			part, dealt, mixed   = make([]int64, 1), make([]int64, 1), make([]int64, 2)
			all, gathered        = make([]int64, 4), make([]int64, 4)
			shared               = []int64{5}
		)
		handles := []*collective.Handle{
			collective.IReduce(ctx, c, reduced, mine, collective.Sum[int64], 0),
			collective.IReduceScatter(ctx, c, part, mine, collective.Sum[int64]),
			collective.IAllGather(ctx, c, all, mine),
			collective.IGather(ctx, c, gathered, mine, 0),
			collective.IScatter(ctx, c, dealt, mine, 0),
			collective.IAllToAll(ctx, c, mixed, mine),
			collective.IScan(ctx, c, upTo, mine, collective.Sum[int64]),
			collective.IExScan(ctx, c, below, mine, collective.Sum[int64]),
			collective.IBroadcast(ctx, c, shared, 1),
			collective.IBarrier(ctx, c),
		}
		for _, h := range handles {
			if err := h.Wait(ctx); err != nil {
				return nil, err
			}
		}
		return fmt.Sprint(part, all, dealt, mixed, upTo, shared), nil
	})
	// Output:
	// rank 0: [3] [1 10 2 20] [1] [1 2] [1 10] [5]
	// rank 1: [30] [1 10 2 20] [10] [10 20] [3 30] [5]
}
