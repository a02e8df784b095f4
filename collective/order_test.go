package collective_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/testing/cluster"
)

// ringCalls carries out each call that a ring supports and returns all results in sequence.
// The inputs are integers, whose sums do not depend on the order.
func ringCalls(ctx context.Context, c *collective.Comm, length, root int) ([]int64, error) {
	n, rank := c.Size(), c.Rank()
	src := make([]int64, length)
	for i := range src {
		src[i] = int64(rank+1)*1_000_003 + int64(i)*7919
	}
	counts := make([]int, n)
	for i := range counts {
		counts[i] = (length + 3*i) % 5
	}
	first, end := collective.Chunk(length, n, rank)
	total := 0
	for _, k := range counts {
		total += k
	}
	sum, scattered, reduced := make([]int64, length), make([]int64, end-first), make([]int64, length)
	gathered, varied, copied := make([]int64, n*length), make([]int64, total), slices.Clone(src)
	own := make([]int64, counts[rank])
	for i := range own {
		own[i] = int64(100*rank + i)
	}
	err := errors.Join(
		collective.AllReduce(ctx, c, sum, src, collective.Sum[int64]),
		collective.ReduceScatter(ctx, c, scattered, src, collective.Max[int64]),
		collective.AllGather(ctx, c, gathered, src),
		collective.AllGatherV(ctx, c, varied, own, counts),
		collective.Broadcast(ctx, c, copied, root),
		collective.Reduce(ctx, c, reduced, src, collective.Sum[int64], root))
	if rank != root {
		reduced = nil // at other ranks Reduce leaves it undefined
	}
	return slices.Concat(sum, scattered, gathered, varied, copied, reduced), err
}

// Every call has the same result for every order of the ring, also if calls with and
// without an order alternate in one sequence.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(rt, "n")
		order := rapid.Permutation(ranksOf(n)).Draw(rt, "order")
		length, root := rapid.IntRange(0, 40).Draw(rt, "length"), rapid.IntRange(0, n-1).Draw(rt, "root")
		cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error {
			// All calls use a ring, because other algorithms ignore the order.
			c = c.With(collective.CallOptions{Algorithm: collective.Ring})
			want, err := ringCalls(ctx, c, length, root)
			if err != nil {
				return err
			}
			d := c.With(collective.CallOptions{Order: order})
			got, err := ringCalls(ctx, d, length, root)
			if err == nil && !slices.Equal(got, want) {
				err = fmt.Errorf("order %v: %v, want %v", order, got, want)
			}
			return err
		})
	})
}

// ranksOf returns 0 to n-1.
func ranksOf(n int) []int {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	return ranks
}

// Sums of floating-point numbers have the same bits at all ranks for any order, although they are
// rounded.
func TestOrderSameBits(t *testing.T) {
	const n, length = 5, 1000
	sums := make([][]float32, n)
	cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error {
		c = c.With(collective.CallOptions{Algorithm: collective.Ring, Order: []int{0, 3, 1, 4, 2}})
		v := make([]float32, length)
		for i := range v {
			v[i] = 1 / float32(1+i*(c.Rank()+1))
		}
		sums[c.Rank()] = v
		return collective.AllReduce(ctx, c, v, v, collective.Sum[float32])
	})
	for rank, v := range sums {
		if !bytes.Equal(kernel.Bytes(v), kernel.Bytes(sums[0])) {
			t.Errorf("rank %d has another sum than rank 0", rank)
		}
	}
}

// Different orders at two ranks are a mismatch. There is no mismatch if the orders are
// rotations of each other, or if the calls use no ring.
func TestOrdersMustAgree(t *testing.T) {
	tests := map[string]struct {
		at       func(rank int) []int
		with     collective.Algorithm
		mismatch bool
	}{
		"turned": {func(rank int) []int {
			return slices.Concat([]int{0, 2, 1, 3}[rank:], []int{0, 2, 1, 3}[:rank])
		}, collective.Ring, false},
		"another": {func(rank int) []int {
			if rank == 2 {
				return []int{0, 1, 3, 2}
			}
			return []int{0, 2, 1, 3}
		}, collective.Ring, true},
		"their own": {func(rank int) []int {
			if rank == 0 {
				return []int{0, 1, 2, 3}
			}
			return []int{0, 3, 2, 1}
		}, collective.Ring, true},
		"not used": {func(rank int) []int {
			if rank == 2 {
				return []int{0, 1, 3, 2}
			}
			return []int{0, 2, 1, 3}
		}, collective.RecursiveDoubling, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				errs := cluster.Run(t, 4, func(ctx context.Context, c *collective.Comm) error {
					c = c.With(collective.CallOptions{Algorithm: test.with, Order: test.at(c.Rank())})
					v := make([]int64, 100)
					return collective.AllReduce(ctx, c, v, v, collective.Sum[int64])
				}, cluster.MayFail())
				for rank, err := range errs {
					var m *collective.MismatchError
					if errors.As(err, &m) != test.mismatch || !test.mismatch && err != nil {
						t.Errorf("rank %d: %v", rank, err)
					}
				}
			})
		})
	}
}

// With an order that is not a permutation every call fails with ErrArgument, also a call that uses
// no ring.
func TestBadOrders(t *testing.T) {
	for _, order := range [][]int{{}, {0, 1}, {0, 1, 1}, {0, 1, 3}, {-1, 0, 1}, {0, 1, 2, 0}} {
		errs := cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
			c = c.With(collective.CallOptions{Order: order})
			if _, err := c.Choice(transport.KindBarrier, 0, true); !errors.Is(err, collective.ErrArgument) {
				return fmt.Errorf("choice: %v", err)
			}
			return collective.Barrier(ctx, c)
		}, cluster.MayFail())
		for rank, err := range errs {
			if !errors.Is(err, collective.ErrArgument) || !errors.Is(err, collective.ErrRevoked) {
				t.Errorf("order %v, rank %d: %v", order, rank, err)
			}
		}
	}
}

// A bad order fails only calls that use it: not other calls of the communicator, and not
// calls with another order in its place.
func TestBadOrderNotUsed(t *testing.T) {
	cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
		bad := c.With(collective.CallOptions{Order: []int{0, 1, 1}})
		for _, good := range []*collective.Comm{c, bad.With(collective.CallOptions{Order: []int{2, 1, 0}})} {
			if err := collective.Barrier(ctx, good); err != nil {
				return err
			}
		}
		return nil
	})
}

// A communicator from Split does not inherit the order, and the transport in memory has no
// meter.
func TestSplitFromOrder(t *testing.T) {
	cluster.Run(t, 4, func(ctx context.Context, c *collective.Comm) error {
		d := c.With(collective.CallOptions{Order: []int{0, 2, 3, 1}})
		half, err := collective.Split(ctx, d, c.Rank()%2, 0)
		if err != nil {
			return err
		}
		v := []int64{1}
		if err := collective.AllReduce(ctx, half.With(collective.CallOptions{Algorithm: collective.Ring}), v, v, collective.Sum[int64]); err != nil {
			return err
		}
		if v[0] != 2 || c.Meter() != nil {
			return fmt.Errorf("sum of two is %d, meter %v", v[0], c.Meter())
		}
		return nil
	})
}
