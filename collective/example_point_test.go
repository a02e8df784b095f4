package collective_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/elrun/elrun/collective"
)

// The ranks of a ring send to the right and receive from the left at the same time.
func ExampleSendRecv() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		rank, n := c.Rank(), c.Size()
		peers := collective.Peers{To: (rank + 1) % n, From: (rank - 1 + n) % n}
		got := make([]int32, 1)
		err := collective.SendRecv(ctx, c, peers, 0, got, []int32{int32(10 * rank)})
		return got, err
	})
	// Output:
	// rank 0: [20]
	// rank 1: [0]
	// rank 2: [10]
}

// Rank 0 receives results of any length from whichever rank is ready.
func ExampleProbe() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		const result = 7
		if c.Rank() > 0 {
			return nil, collective.Send(ctx, c, 0, result, make([]float64, 100*c.Rank()))
		}
		sum := 0
		for range c.Size() - 1 {
			m, err := collective.Probe(ctx, c, collective.AnySource, result)
			if err != nil {
				return nil, err
			}
			v := make([]float64, m.Len)
			if err := collective.Recv(ctx, c, m.From, m.Tag, v); err != nil {
				return nil, err
			}
			sum += len(v)
		}
		return sum, nil
	})
	// Output: rank 0: 300
}

// Several calls are in progress; all of them must end.
func ExampleWaitAll() {
	group(2, func(ctx context.Context, c *collective.Comm) (any, error) {
		other := 1 - c.Rank()
		a, b := make([]int32, 1), make([]int32, 1)
		err := collective.WaitAll(ctx,
			collective.IRecv(ctx, c, other, 1, a),
			collective.IRecv(ctx, c, other, 2, b),
			collective.ISend(ctx, c, other, 2, []int32{20}),
			collective.ISend(ctx, c, other, 1, []int32{10}))
		return fmt.Sprint(a, b), err
	})
	// Output:
	// rank 0: [10] [20]
	// rank 1: [10] [20]
}

// Results are used in the order in which they come.
func ExampleWaitAny() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		if c.Rank() > 0 {
			return nil, collective.Send(ctx, c, 0, 0, []int32{int32(c.Rank())})
		}
		got := make([][1]int32, 3)
		handles := make([]*collective.Handle, 3) // that of rank 0 stays nil
		for from := 1; from < 3; from++ {
			handles[from] = collective.IRecv(ctx, c, from, 0, got[from][:])
		}
		sum := int32(0)
		for {
			from, err := collective.WaitAny(ctx, handles...)
			if from < 0 || err != nil {
				return sum, err
			}
			handles[from] = nil
			sum += got[from][0]
		}
	})
	// Output: rank 0: 3
}

// Test does not wait: a rank can compute until a message comes.
func ExampleHandle_Test() {
	group(2, func(ctx context.Context, c *collective.Comm) (any, error) {
		if c.Rank() == 1 {
			return nil, collective.Send(ctx, c, 0, 0, []int32{42})
		}
		got := make([]int32, 1)
		h := collective.IRecv(ctx, c, 1, 0, got)
		for {
			if done, err := h.Test(); done {
				return got, err
			}
			// compute a little
		}
	})
	// Output: rank 0: [42]
}

// The Handle of an IRecv from any rank knows the sender.
func ExampleHandle_Message() {
	group(2, func(ctx context.Context, c *collective.Comm) (any, error) {
		if c.Rank() == 1 {
			return nil, collective.Send(ctx, c, 0, 3, []float32{1, 2})
		}
		h := collective.IRecv(ctx, c, collective.AnySource, collective.AnyTag, make([]float32, 2))
		err := h.Wait(ctx)
		m := h.Message()
		return fmt.Sprintf("%v[%d] of rank %d, tag %d", m.Type, m.Len, m.From, m.Tag), err
	})
	// Output: rank 0: float32[2] of rank 1, tag 3
}

// Rank 0 reads the settings, and all ranks get them.
func ExampleBroadcastValue() {
	type settings struct {
		Files []string
		Rate  float64
	}
	group(2, func(ctx context.Context, c *collective.Comm) (any, error) {
		var s settings
		if c.Rank() == 0 {
			s = settings{[]string{"a.csv", "b.csv"}, 0.5}
		}
		err := collective.BroadcastValue(ctx, c, &s, 0)
		return s, err
	})
	// Output:
	// rank 0: {[a.csv b.csv] 0.5}
	// rank 1: {[a.csv b.csv] 0.5}
}

// Rank 0 gets a value of each rank.
func ExampleGatherValues() {
	group(3, func(ctx context.Context, c *collective.Comm) (any, error) {
		names, err := collective.GatherValues(ctx, c, fmt.Sprintf("host%d", c.Rank()), 0)
		if err != nil || names == nil {
			return nil, err
		}
		return names, nil
	})
	// Output: rank 0: [host0 host1 host2]
}

// Dims makes grids as square as possible.
func ExampleDims() {
	square, err := collective.Dims(12, 0, 0)
	flat, err2 := collective.Dims(12, 0, 2, 0)
	fmt.Println(square, flat, errors.Join(err, err2))
	// Output: [4 3] [3 2 2] <nil>
}

// A grid of two rows and three columns: ranks 0, 1, 2 are the first row.
func ExampleNewGrid() {
	g, err := collective.NewGrid(6, []int{2, 3}, nil)
	fmt.Println(g.Coords(4), g.Rank(1, 0), err)
	// Output: [1 1] 3 <nil>
}

// Each rank sends to the next rank of its row. The first rank of a row receives nothing, because the
// rows are not periodic.
func ExampleGrid_Shift() {
	group(4, func(ctx context.Context, c *collective.Comm) (any, error) {
		g, err := collective.NewGrid(c.Size(), []int{2, 2}, nil)
		if err != nil {
			return nil, err
		}
		halo := []int32{-1}
		err = collective.SendRecv(ctx, c, g.Shift(c.Rank(), 1, 1), 0, halo, []int32{int32(c.Rank())})
		return halo, err
	})
	// Output:
	// rank 0: [-1]
	// rank 1: [0]
	// rank 2: [-1]
	// rank 3: [2]
}
