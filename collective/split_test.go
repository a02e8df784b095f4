package collective_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
)

// members returns the ranks of the callers, in the order of c. own is the caller's rank in
// another communicator.
func members(ctx context.Context, c *collective.Comm, own int) ([]int64, error) {
	all := make([]int64, c.Size())
	err := collective.AllGather(ctx, c, all, []int64{int64(own)})
	return all, err
}

// For any colors and keys, each communicator from Split has the ranks of one color, in the order of
// keys, then ranks, and works.
func TestSplit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(rt, "n")
		colors := rapid.SliceOfN(rapid.IntRange(-1, 2), n, n).Draw(rt, "colors")
		keys := rapid.SliceOfN(rapid.IntRange(-2, 2), n, n).Draw(rt, "keys")
		cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error {
			rank := c.Rank()
			part, err := collective.Split(ctx, c, colors[rank], keys[rank])
			if err != nil || colors[rank] < 0 {
				if part != nil {
					err = fmt.Errorf("color %d got a communicator", colors[rank])
				}
				return err
			}
			got, err := members(ctx, part, rank)
			if err != nil {
				return err
			}
			want := twin(colors, keys, colors[rank])
			if !slices.Equal(got, want) || want[part.Rank()] != int64(rank) || part.Size() != len(want) {
				return fmt.Errorf("color %d: %v, rank %d of %d; want %v", colors[rank], got, part.Rank(), part.Size(), want)
			}
			return nil
		})
	})
}

// twin returns the expected ranks of a color, key by key.
func twin(colors, keys []int, color int) []int64 {
	var all []int64
	for key := -2; key <= 2; key++ {
		for rank := range colors {
			if colors[rank] == color && keys[rank] == key {
				all = append(all, int64(rank))
			}
		}
	}
	return all
}

// Communicators can be split repeatedly, down to single ranks, and calls of all kinds work on the
// parts.
func TestSplitNested(t *testing.T) {
	jobs := make(map[int][]job)
	for n := 1; n <= 8; n *= 2 {
		for _, s := range suites()[:1] {
			jobs[n] = append(jobs[n],
				job{s.prepare(moving, n, 10*n), calls(ways(carrying(), false), n, []int{10})},
				job{s.prepare("affine", n, 10), calls(ways(reducing(), true), n, []int{10})})
		}
	}
	cluster.Run(t, 8, func(ctx context.Context, c *collective.Comm) error {
		for part := c; ; {
			for _, j := range jobs[part.Size()] {
				if err := j.run(ctx, part); err != nil {
					return err
				}
			}
			if part.Size() == 1 {
				return collective.Barrier(ctx, c)
			}
			half, err := collective.Split(ctx, part, part.Rank()%2, -part.Rank())
			if err != nil {
				return err
			}
			part = half
		}
	})
}

// Three goroutines per rank make calls on their own duplicates, at different speeds. Calls of
// different duplicates must not match each other.
func TestDupIndependent(t *testing.T) {
	cluster.Run(t, 4, func(ctx context.Context, c *collective.Comm) error {
		var errs [3]error
		var all sync.WaitGroup
		for i := range errs {
			d, err := collective.Dup(ctx, c)
			if err != nil {
				return err
			}
			all.Go(func() { errs[i] = manySums(ctx, d, i) })
		}
		all.Wait()
		return errors.Join(errs[:]...)
	})
}

func manySums(ctx context.Context, c *collective.Comm, mark int) error {
	for round := range 100 {
		v := make([]int64, 1+(round*(mark+1))%50)
		for i := range v {
			v[i] = int64(mark*1_000_000 + round*1000 + i + c.Rank())
		}
		if err := collective.AllReduce(ctx, c, v, v, collective.Sum[int64]); err != nil {
			return err
		}
		for i := range v {
			if want := int64(4*(mark*1_000_000+round*1000+i) + 6); v[i] != want {
				return fmt.Errorf("duplicate %d round %d: element %d is %d, want %d", mark, round, i, v[i], want)
			}
		}
	}
	return nil
}

// Ranks that have returned from Split may make calls on the new communicator before other ranks
// have returned: messages stay in the mailbox until the receiver has the communicator.
func TestSplitRunsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
			part, err := collective.Split(ctx, c, 0, 0)
			if err != nil {
				return err
			}
			if c.Rank() == 2 {
				synctest.Wait() // until the other ranks are in their barriers
			}
			return errors.Join(collective.Barrier(ctx, part), collective.Barrier(ctx, c))
		})
	})
}

// A mismatch on a part ends all communicators; the error names ranks of the transport.
func TestMismatchOnPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := cluster.Run(t, 6, func(ctx context.Context, c *collective.Comm) error {
			part, err := collective.Split(ctx, c, c.Rank()%2, 0)
			if err != nil {
				return err
			}
			switch c.Rank() {
			case 5:
				return callInt32(ctx, part, "scan", usual())
			case 1, 3:
				return callInt32(ctx, part, "barrier", usual())
			}
			return collective.Recv(ctx, c, 1, 0, []int8{})
		}, cluster.MayFail())
		for rank, err := range errs {
			checkMismatch(t, fmt.Sprint("rank ", rank), err, "scan", "barrier")
			var m *collective.MismatchError
			if errors.As(err, &m) && m.RankA != 5 && m.RankB != 5 {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	})
}

// With changes the options of calls, not their sequence.
func TestWithSharesSequence(t *testing.T) {
	cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
		for _, a := range []collective.Algorithm{collective.Ring, collective.Tree, collective.Auto} {
			if err := callInt32(ctx, c.With(collective.CallOptions{Algorithm: a}), "allreduce", usual()); err != nil {
				return err
			}
			if err := collective.Barrier(ctx, c); err != nil {
				return err
			}
		}
		return nil
	})
}
