package collective_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
)

// Ranks of a host take numbers from the words of rank 0 of their host. Each number is taken once, no other word changes, and
// ranks of other hosts have no words.
func TestBoard(t *testing.T) {
	t.Parallel()
	const numbers = 2000
	var taken [2][numbers]atomic.Int32 // by host
	cluster.Run(t, 5, func(ctx context.Context, c *collective.Comm) error {
		b := c.Board()
		host := c.Rank() / 3 // ranks 0 to 2, and 3 and 4
		for rank := range c.Size() {
			if b.Has(rank) != (rank/3 == host) {
				t.Errorf("rank %d has words of rank %d: %t", c.Rank(), rank, b.Has(rank))
			}
		}
		for b.Load(3*host, 1) < numbers {
			if n := b.Load(3*host, 1); n < numbers && b.Swap(3*host, 1, n, n+1) {
				taken[host][n].Add(1)
			}
		}
		b.Store(2, uint64(c.Rank())+7)
		if other := 3 - 3*host; b.Load(other, 1) != 0 || b.Swap(other, 1, 0, 1) {
			t.Errorf("rank %d uses a word of rank %d", c.Rank(), other)
		}
		if err := collective.Barrier(ctx, c); err != nil {
			return err
		}
		for rank := range c.Size() {
			if b.Has(rank) && (b.Load(rank, 2) != uint64(rank)+7 || b.Load(rank, 0) != 0) {
				t.Errorf("words of rank %d: %d and %d", rank, b.Load(rank, 0), b.Load(rank, 2))
			}
		}
		return collective.Barrier(ctx, c)
	}, cluster.Over(sharing(t, 3, 2)))
	for host := range taken {
		for n := range taken[host] {
			if k := taken[host][n].Load(); k != 1 {
				t.Fatalf("host %d: %d was taken %d times", host, n, k)
			}
		}
	}
}

// After Close the words are not touched, because their memory is released.
func TestBoardAfterClose(t *testing.T) {
	t.Parallel()
	cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
		b := c.Board()
		b.Store(0, 5)
		if err := collective.Barrier(ctx, c); err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
		b.Store(0, 6)
		if b.Load(c.Rank(), 0) != 0 || b.Swap(c.Rank(), 0, 5, 6) {
			return fmt.Errorf("rank %d uses released memory", c.Rank())
		}
		return nil
	}, cluster.Over(sharing(t, 2)))
}

// Without shared memory there are no words.
func TestNoBoard(t *testing.T) {
	t.Parallel()
	cluster.Run(t, 2, func(_ context.Context, c *collective.Comm) error {
		b := c.Board()
		b.Store(0, 1)
		if b.Has(0) || b.Load(0, 0) != 0 || b.Swap(0, 0, 0, 1) || (*collective.Comm)(nil).Board() != nil {
			return fmt.Errorf("rank %d has words", c.Rank())
		}
		return nil
	})
}

// The ranks of a host agree by a word which of them does something first.
func ExampleComm_Board() {
	group(2, func(_ context.Context, c *collective.Comm) (any, error) {
		b := c.Board() // nil here, because the ranks share no memory
		return b.Has(0) && b.Swap(0, 0, 0, 1), nil
	})
	// Output:
	// rank 0: false
	// rank 1: false
}
