package collective_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/transport/mem"
)

// New makes a communicator over a transport, here for a single rank. OnStall is called for calls
// that wait unusually long.
func ExampleNew() {
	c, err := collective.New(mem.New(1)[0], 0, 1, collective.Options{
		OnStall: func(s collective.Stall) { fmt.Println(s) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("rank", c.Rank(), "of", c.Size())
	if err := c.Close(); err != nil {
		fmt.Println(err)
	}
	// Output: rank 0 of 1
}

// Rank 1 makes a call less than rank 0. Because it declares that it has finished, rank 0 does not
// wait for ever.
func ExampleComm_Finish() {
	group(2, func(ctx context.Context, c *collective.Comm) (any, error) {
		if c.Rank() == 1 {
			c.Finish()
			return "finished", nil
		}
		err := collective.Barrier(ctx, c)
		return errors.Is(err, collective.ErrRevoked), nil
	})
	// Output:
	// rank 0: true
	// rank 1: finished
}

// The ranks of one host make a communicator of their own.
func ExampleSplit() {
	group(4, func(ctx context.Context, c *collective.Comm) (any, error) {
		host := c.Rank() / 2
		local, err := collective.Split(ctx, c, host, c.Rank())
		if err != nil {
			return nil, err
		}
		sum := []int32{int32(c.Rank())}
		err = collective.AllReduce(ctx, local, sum, sum, collective.Sum[int32])
		return fmt.Sprintf("%d of %d, sum %d", local.Rank(), local.Size(), sum[0]), err
	})
	// Output:
	// rank 0: 0 of 2, sum 1
	// rank 1: 1 of 2, sum 1
	// rank 2: 0 of 2, sum 5
	// rank 3: 1 of 2, sum 5
}

// A second goroutine needs its own communicator: the order of the two goroutines' calls may
// differ between ranks.
func ExampleDup() {
	group(2, func(ctx context.Context, c *collective.Comm) (any, error) {
		d, err := collective.Dup(ctx, c)
		if err != nil {
			return nil, err
		}
		loss := []float64{float64(c.Rank())}
		logged := make(chan error)
		go func() { logged <- collective.AllReduce(ctx, d, loss, loss, collective.Max[float64]) }()
		gradient := []float64{1}
		err = collective.AllReduce(ctx, c, gradient, gradient, collective.Sum[float64])
		err = errors.Join(err, <-logged, d.Close())
		return fmt.Sprint(gradient, loss), err
	})
	// Output:
	// rank 0: [2] [1]
	// rank 1: [2] [1]
}

// With gives some calls other options, while all calls stay in one sequence: here around a ring of
// another order, with priority over other messages, and with a name for reports of stalls. Programs
// keep a communicator that many calls use.
func ExampleComm_With() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		urgent := c.With(collective.CallOptions{
			Algorithm: collective.Ring,
			Order:     []int{0, 2, 1},
			Priority:  1,
			For:       "first bucket",
		})
		v := []float32{1, 2, 3}
		if err := collective.AllReduce(ctx, urgent, v, v, collective.Sum[float32]); err != nil {
			return nil, err
		}
		err := collective.Barrier(ctx, c)
		return v, err
	})
	// Output:
	// rank 0: [3 6 9]
	// rank 1: [3 6 9]
	// rank 2: [3 6 9]
}

// The choice of Auto depends on the sizes and on the costs of messages, which Calibrate measures. A
// user may choose an algorithm by name.
func ExampleParseAlgorithm() {
	ring, err := collective.ParseAlgorithm("ring")
	if err != nil {
		fmt.Println(err)
		return
	}
	group(4, func(_ context.Context, c *collective.Comm) (any, error) {
		if c.Rank() > 0 {
			return nil, nil
		}
		short, err := c.Choice(transport.KindAllReduce, 64, true)
		if err != nil {
			return nil, err
		}
		long, err := c.Choice(transport.KindAllReduce, 64<<20, true)
		if err != nil {
			return nil, err
		}
		_, err = c.With(collective.CallOptions{Algorithm: ring}).Choice(transport.KindBarrier, 0, true)
		return fmt.Sprintf("%v, %v, %t", short, long, errors.Is(err, collective.ErrArgument)), nil
	})
	// Output: rank 0: recursive-doubling, ring, true
}

// The costs before any measurement: seconds per message, per byte of a message, and per
// byte of a sum.
func ExampleDefaultCost() {
	cost := collective.DefaultCost()
	const bytes = 1 << 20
	message := time.Duration(1e9 * (cost.Alpha + bytes*cost.Beta))
	fmt.Println("a message of 1 MiB takes", message.Round(10*time.Microsecond))
	// Output: a message of 1 MiB takes 1.61ms
}

// The bounds of the chunks of 10 elements at four ranks.
func ExampleChunk() {
	for rank := range 4 {
		first, end := collective.Chunk(10, 4, rank)
		fmt.Println(first, end)
	}
	// Output:
	// 0 3
	// 3 6
	// 6 8
	// 8 10
}

// Ranks that make different calls get an error that names two of them. Such a mismatch is a bug of
// the program, so it would recur on any other communicator.
func ExampleMismatchError() {
	group(2, func(ctx context.Context, c *collective.Comm) (any, error) {
		v := make([]int32, 1+c.Rank())
		err := collective.AllReduce(ctx, c, v, v, collective.Sum[int32])
		var m *collective.MismatchError
		if errors.As(err, &m) {
			return fmt.Sprint(m.A.Kind, " of ", min(m.A.Count, m.B.Count), " and of ", max(m.A.Count, m.B.Count), " elements, ",
				errors.Is(err, collective.ErrMistake)), nil
		}
		return nil, err
	})
	// Output:
	// rank 0: allreduce of 1 and of 2 elements, true
	// rank 1: allreduce of 1 and of 2 elements, true
}

// Revoke at one rank ends the calls of all ranks, and all ranks get the cause.
func ExampleComm_Revoke() {
	group(2, func(ctx context.Context, c *collective.Comm) (any, error) {
		if c.Rank() == 0 {
			c.Revoke(errors.New("the disk is full"))
			return nil, nil
		}
		err := collective.Barrier(ctx, c)
		var a *collective.AbortError
		if errors.As(err, &a) && errors.Is(err, collective.ErrRevoked) {
			return a, nil
		}
		return nil, err
	})
	// Output: rank 1: revoked by rank 0: the disk is full
}

// Vectors in memory that the ranks of a host share are reduced in place, without a copy. If
// there is no such memory, as here, Alloc returns an ordinary slice.
func ExampleAlloc() {
	group(2, func(ctx context.Context, c *collective.Comm) (any, error) {
		v, err := collective.Alloc[float32](c, 1000)
		if err != nil {
			return nil, err
		}
		v[0] = 1
		if err := collective.AllReduce(ctx, c, v, v, collective.Sum[float32]); err != nil {
			return nil, err
		}
		return fmt.Sprint(v[0], collective.IsShared(c, v) == c.SharesMemory()), collective.Free(c, v)
	})
	// Output:
	// rank 0: 2 true
	// rank 1: 2 true
}
