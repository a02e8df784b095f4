package collective_test

import (
	"context"
	"errors"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/transport/mem"
)

// New refuses bad arguments.
func TestNewArguments(t *testing.T) {
	tests := []struct {
		rank, size, segment int
	}{{0, 0, 0}, {-1, 2, 0}, {2, 2, 0}, {0, 1, 4}, {0, 1, 12}, {0, 1, -8}, {0, 1, 1 << 30}}
	for _, test := range tests {
		c, err := collective.New(mem.New(1)[0], test.rank, test.size, collective.Options{Segment: test.segment})
		if !errors.Is(err, collective.ErrArgument) {
			t.Errorf("%+v: %v, %v", test, c, err)
		}
	}
}

// mistake is a call by two ranks with arguments that do not fit.
type mistake struct {
	name string
	do   func(ctx context.Context, c *collective.Comm, two, three []int32) error
}

func mistakes() []mistake {
	type comm = *collective.Comm
	type v = []int32
	sum := collective.Sum[int32]
	return []mistake{
		{"allreduce", func(ctx context.Context, c comm, two, three v) error {
			return collective.AllReduce(ctx, c, two, three, sum)
		}},
		{"reducescatter", func(ctx context.Context, c comm, two, _ v) error {
			return collective.ReduceScatter(ctx, c, two, two, sum)
		}},
		{"allgather", func(ctx context.Context, c comm, two, three v) error { return collective.AllGather(ctx, c, three, two) }},
		{"allgatherv", func(ctx context.Context, c comm, two, three v) error {
			return collective.AllGatherV(ctx, c, three, two, []int{2, 2})
		}},
		{"too few counts", func(ctx context.Context, c comm, two, three v) error {
			return collective.AllGatherV(ctx, c, three, two, []int{2})
		}},
		{"negative count", func(ctx context.Context, c comm, two, three v) error {
			return collective.GatherV(ctx, c, three, two, []int{-1, 4}, 0)
		}},
		{"own count", func(ctx context.Context, c comm, two, three v) error {
			return collective.ScatterV(ctx, c, two, three, []int{1, 2}, 1)
		}},
		{"root", func(ctx context.Context, c comm, two, _ v) error { return collective.Broadcast(ctx, c, two, 2) }},
		{"no root", func(ctx context.Context, c comm, two, _ v) error { return collective.Reduce(ctx, c, two, two, sum, -1) }},
		{"nobody's gather", func(ctx context.Context, c comm, two, _ v) error {
			return collective.Gather(ctx, c, make(v, 4), two, -1)
		}},
		{"root's dst", func(ctx context.Context, c comm, two, _ v) error {
			return collective.Gather(ctx, c, nil, two, c.Rank())
		}},
		{"root's src", func(ctx context.Context, c comm, two, _ v) error {
			return collective.Scatter(ctx, c, two, nil, c.Rank())
		}},
		{"alltoall", func(ctx context.Context, c comm, _, three v) error { return collective.AllToAll(ctx, c, three, three) }},
		{"scan", func(ctx context.Context, c comm, two, three v) error { return collective.Scan(ctx, c, two, three, sum) }},
		{"tag", func(ctx context.Context, c comm, two, _ v) error { return collective.Send(ctx, c, 1, -1, two) }},
		{"great tag", func(ctx context.Context, c comm, two, _ v) error {
			return collective.Recv(ctx, c, 1, collective.MaxTag+1, two)
		}},
		{"peer", func(ctx context.Context, c comm, two, _ v) error { return collective.Send(ctx, c, 2, 0, two) }},
		{"algorithm", func(ctx context.Context, c comm, _, _ v) error {
			return collective.Barrier(ctx, c.With(collective.CallOptions{Algorithm: collective.Ring}))
		}},
		{"ordered ring", func(ctx context.Context, c comm, two, _ v) error {
			op := collective.NewOp("left", false, func(dst, a, _ []int32) { copy(dst, a) })
			return collective.AllReduce(ctx, c.With(collective.CallOptions{Algorithm: collective.Ring}), two, two, op)
		}},
	}
}

// pairMistakes lists mistakes in the counts of AllToAllV and ReduceScatterV.
func pairMistakes() []mistake {
	type comm = *collective.Comm
	type v = []int32
	return []mistake{
		{"alltoallv's dst", func(ctx context.Context, c comm, two, three v) error {
			return collective.AllToAllV(ctx, c, three, make(v, 2), []int{1, 1}, []int{1, 1})
		}},
		{"alltoallv's src", func(ctx context.Context, c comm, two, three v) error {
			return collective.AllToAllV(ctx, c, two, three, []int{1, 1}, []int{1, 1})
		}},
		{"alltoallv's counts", func(ctx context.Context, c comm, two, three v) error {
			return collective.AllToAllV(ctx, c, two, three, []int{1, 1}, []int{3})
		}},
		{"to itself", func(ctx context.Context, c comm, two, three v) error {
			own, other := []int{2, 1}, []int{1, 2}
			return collective.AllToAllV(ctx, c, make(v, 3), three, own, other)
		}},
		{"chunk's count", func(ctx context.Context, c comm, two, three v) error {
			return collective.ReduceScatterV(ctx, c, two, three, []int{1, 1}, collective.Sum[int32])
		}},
		{"chunk's dst", func(ctx context.Context, c comm, two, three v) error {
			return collective.ReduceScatterV(ctx, c, three, two, []int{1, 1}, collective.Sum[int32])
		}},
	}
}

// Arguments that do not fit are an ErrArgument at the rank that passed them, and end the
// call at all ranks.
func TestArguments(t *testing.T) {
	for _, m := range append(mistakes(), pairMistakes()...) {
		t.Run(m.name, func(t *testing.T) {
			errs := cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
				return m.do(ctx, c, make([]int32, 2), make([]int32, 3))
			}, cluster.MayFail())
			for rank, err := range errs {
				if !errors.Is(err, collective.ErrRevoked) {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
			if !errors.Is(errors.Join(errs...), collective.ErrArgument) {
				t.Errorf("got %v", errs)
			}
		})
	}
}
