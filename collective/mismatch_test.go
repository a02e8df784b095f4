package collective_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
)

// act is the action of one rank.
type act struct {
	name string
	do   func(ctx context.Context, c *collective.Comm) error
}

// args are the arguments of a call that may differ between two ranks.
type args struct {
	length, root int
	algorithm    collective.Algorithm
	op           collective.Op[int32]
}

func usual() args { return args{length: 4, op: collective.Sum[int32]} }

// kinds lists the names of all kinds of collective calls.
func kinds() []string {
	return []string{"allreduce", "reducescatter", "allgather", "broadcast", "reduce", "gather",
		"scatter", "alltoall", "scan", "exscan", "alltoallv", "barrier", "split"}
}

// callOf returns the act of a call of kind with elements of int32.
func callOf(kind string, a args) act {
	return act{kind, func(ctx context.Context, c *collective.Comm) error { return callInt32(ctx, c, kind, a) }}
}

func callInt32(ctx context.Context, c *collective.Comm, kind string, a args) error {
	n := c.Size()
	c = c.With(collective.CallOptions{Algorithm: a.algorithm})
	v, all := make([]int32, a.length), make([]int32, n*a.length)
	switch kind {
	case "allreduce":
		return collective.AllReduce(ctx, c, v, v, a.op)
	case "reducescatter":
		first, end := collective.Chunk(len(v), n, c.Rank())
		return collective.ReduceScatter(ctx, c, v[first:end], v, a.op)
	case "reducescatterv":
		counts, first, end := cut(len(v), n, c.Rank())
		return collective.ReduceScatterV(ctx, c, v[first:end], v, counts, a.op)
	case "allgather":
		return collective.AllGather(ctx, c, all, v)
	case "broadcast":
		return collective.Broadcast(ctx, c, v, a.root)
	case "reduce":
		return collective.Reduce(ctx, c, v, v, a.op, a.root)
	case "gather":
		return collective.Gather(ctx, c, all, v, a.root)
	case "scatter":
		return collective.Scatter(ctx, c, v, all, a.root)
	case "alltoall":
		return collective.AllToAll(ctx, c, make([]int32, len(all)), all)
	case "alltoallv":
		counts := slices.Repeat([]int{a.length}, n)
		return collective.AllToAllV(ctx, c, make([]int32, len(all)), all, counts, counts)
	case "scan":
		return collective.Scan(ctx, c, v, v, a.op)
	case "exscan":
		return collective.ExScan(ctx, c, v, v, a.op)
	case "barrier":
		return collective.Barrier(ctx, c)
	case "split":
		_, err := collective.Split(ctx, c, 0, 0)
		return err
	}
	return fmt.Errorf("unknown kind %q", kind)
}

// hang bounds the duration of operations that must not hang, in virtual or real time.
const hang = 4 * time.Minute

// positions calls f for every number of ranks from 2 to 5 and every choice of the deviant rank.
func positions(f func(n, deviant int)) {
	for n := 2; n <= 5; n++ {
		for deviant := range n {
			f(n, deviant)
		}
	}
}

// differ lets rank deviant of n ranks perform the act other while the other ranks perform the act
// common, in virtual time. Within a second every rank must get a mismatch that names both calls.
func differ(t *testing.T, n, deviant int, common, other act) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		took := make([]time.Duration, n)
		begin := time.Now()
		errs := cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error {
			err := oneOf(ctx, c, deviant, common, other)
			took[c.Rank()] = time.Since(begin)
			return err
		}, cluster.MayFail())
		for rank, err := range errs {
			where := fmt.Sprintf("n=%d, rank %d calls %s, others %s: rank %d after %v", n, deviant, other.name, common.name, rank, took[rank])
			if took[rank] > time.Second {
				t.Errorf("%s: too late: %v", where, err)
			}
			checkMismatch(t, where, err, common.name, other.name)
		}
	})
}

func oneOf(ctx context.Context, c *collective.Comm, deviant int, common, other act) error {
	ctx, cancel := context.WithTimeout(ctx, hang)
	defer cancel()
	if c.Rank() == deviant {
		return other.do(ctx, c)
	}
	return common.do(ctx, c)
}

// checkMismatch fails unless err is a mismatch that names two different calls, whose kinds
// are the first words of a and b.
func checkMismatch(t *testing.T, where string, err error, a, b string) {
	t.Helper()
	var m *collective.MismatchError
	if !errors.As(err, &m) || !errors.Is(err, collective.ErrMismatch) || !errors.Is(err, collective.ErrRevoked) {
		t.Errorf("%s: got %v, want a mismatch", where, err)
		return
	}
	a, _, _ = strings.Cut(a, " ")
	b, _, _ = strings.Cut(b, " ")
	x, y := m.A.Kind.String(), m.B.Kind.String()
	if !(x == a && y == b || x == b && y == a) || m.A == m.B || m.RankA == m.RankB {
		t.Errorf("%s: names other calls: %v", where, err)
	}
	if !strings.Contains(err.Error(), m.A.String()) || !strings.Contains(err.Error(), m.B.String()) {
		t.Errorf("%s: does not say what was called: %v", where, err)
	}
}

// Any two different kinds of collective calls are a mismatch, whichever rank makes the deviant
// call.
func TestMismatchOfKinds(t *testing.T) {
	for _, common := range kinds() {
		for _, other := range kinds() {
			if common == other {
				continue
			}
			positions(func(n, deviant int) {
				differ(t, n, deviant, callOf(common, usual()), callOf(other, usual()))
			})
		}
	}
}

// variation is one call with two different arguments.
type variation struct{ common, other act }

// variations lists pairs of calls of one kind that differ in one argument.
func variations() []variation {
	var all []variation
	add := func(kind, what string, common, other args) {
		a, b := callOf(kind, common), callOf(kind, other)
		b.name += " with another " + what
		all = append(all, variation{a, b})
	}
	with := func(change func(*args)) args {
		a := usual()
		change(&a)
		return a
	}
	for _, kind := range kinds()[:10] {
		add(kind, "length", usual(), with(func(a *args) { a.length = 5 }))
		add(kind, "length, none", usual(), with(func(a *args) { a.length = 0 }))
		add(kind, "length, long", usual(), with(func(a *args) { a.length = 1 << 18 }))
		all = append(all, variation{callOf(kind, usual()), ofFloats(kind)})
	}
	for _, kind := range []string{"allreduce", "reducescatter", "reduce", "scan", "exscan"} {
		add(kind, "operation", usual(), with(func(a *args) { a.op = collective.Max[int32] }))
	}
	for _, kind := range []string{"broadcast", "reduce", "gather", "scatter"} {
		add(kind, "root", usual(), with(func(a *args) { a.root = 1 }))
	}
	for _, r := range append(reducing(), carrying()...) {
		if r.kind == "barrier" || r.kind == "sendrecv" || strings.HasSuffix(r.kind, "v") {
			continue
		}
		for i, a := range r.algorithms[1:] {
			for _, b := range r.algorithms[1 : i+1] {
				add(r.kind, "algorithm", with(func(x *args) { x.algorithm = a }), with(func(x *args) { x.algorithm = b }))
			}
		}
	}
	return append(all, variedCounts()...)
}

// ofFloats is callOf with the usual arguments and with elements of another type of the same
// size.
func ofFloats(kind string) act {
	return act{kind + " of another type", func(ctx context.Context, c *collective.Comm) error {
		n := c.Size()
		v, all := make([]float32, 4), make([]float32, 4*n)
		first, end := collective.Chunk(4, n, c.Rank())
		switch kind {
		case "allreduce":
			return collective.AllReduce(ctx, c, v, v, collective.Sum[float32])
		case "reducescatter":
			return collective.ReduceScatter(ctx, c, v[first:end], v, collective.Sum[float32])
		case "allgather":
			return collective.AllGather(ctx, c, all, v)
		case "broadcast":
			return collective.Broadcast(ctx, c, v, 0)
		case "reduce":
			return collective.Reduce(ctx, c, v, v, collective.Sum[float32], 0)
		case "gather":
			return collective.Gather(ctx, c, all, v, 0)
		case "scatter":
			return collective.Scatter(ctx, c, v, all, 0)
		case "alltoall":
			return collective.AllToAll(ctx, c, make([]float32, len(all)), all)
		case "scan":
			return collective.Scan(ctx, c, v, v, collective.Sum[float32])
		}
		return collective.ExScan(ctx, c, v, v, collective.Sum[float32])
	}}
}

// variedCounts lists calls with different counts of the same sum.
func variedCounts() []variation {
	counts := func(n, first int) []int {
		all := make([]int, n)
		all[first] = 6 // the parts of the other ranks are empty
		return all
	}
	do := func(kind string, first int) act {
		return act{kind + fmt.Sprint(" of 6 elements of rank ", first), func(ctx context.Context, c *collective.Comm) error {
			parts := counts(c.Size(), first)
			own, all := make([]int8, parts[c.Rank()]), make([]int8, 6)
			switch kind {
			case "allgather":
				return collective.AllGatherV(ctx, c, all, own, parts)
			case "gather":
				return collective.GatherV(ctx, c, all, own, parts, 0)
			case "reducescatter":
				return collective.ReduceScatterV(ctx, c, own, all, parts, collective.Sum[int8])
			}
			return collective.ScatterV(ctx, c, own, all, parts, 0)
		}}
	}
	var all []variation
	for _, kind := range []string{"allgather", "gather", "scatter", "reducescatter"} {
		all = append(all, variation{do(kind, 0), do(kind, 1)})
	}
	return all
}

// Two ranks whose counts for each other differ get a mismatch, whether the parts are shorter than a segment, longer, or exactly
// some segments long. The other ranks get it, too.
func TestMismatchOfPairs(t *testing.T) {
	const segment = 4 // elements
	for _, sent := range []int{0, 1, segment, segment + 1, 2 * segment, 3 * segment} {
		for _, expected := range []int{0, 1, segment, segment + 1, 2 * segment, 3 * segment} {
			if sent == expected {
				continue
			}
			positions(func(n, deviant int) {
				synctest.Test(t, func(t *testing.T) {
					errs := cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error {
						to := (deviant + 1) % n
						sends, receives := make([]int, n), make([]int, n)
						if c.Rank() == deviant {
							sends[to] = sent
						}
						if c.Rank() == to {
							receives[deviant] = expected
						}
						return collective.AllToAllV(ctx, c, make([]int32, receives[deviant]), make([]int32, sends[to]), receives, sends)
					}, cluster.WithOptions(collective.Options{Segment: 4 * segment}), cluster.MayFail())
					for rank, err := range errs {
						if !errors.Is(err, collective.ErrMismatch) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d sent", deviant)) {
							t.Errorf("n=%d, rank %d sends %d instead of %d: rank %d returns %v", n, deviant, sent, expected, rank, err)
						}
					}
				})
			})
		}
	}
}

func TestMismatchOfArguments(t *testing.T) {
	for _, v := range variations() {
		positions(func(n, deviant int) { differ(t, n, deviant, v.common, v.other) })
	}
}

// If one rank makes two calls in the opposite order, the first of the two is the mismatch.
func TestMismatchOfOrder(t *testing.T) {
	both := func(a, b string) act {
		return act{a, func(ctx context.Context, c *collective.Comm) error {
			return errors.Join(callInt32(ctx, c, a, usual()), callInt32(ctx, c, b, usual()))
		}}
	}
	for i, a := range kinds() {
		b := kinds()[(i+5)%len(kinds())]
		positions(func(n, deviant int) { differ(t, n, deviant, both(a, b), both(b, a)) })
	}
}

// A missing call at one rank is found at its next call.
func TestMismatchOfOneTooFew(t *testing.T) {
	two := act{"scan", func(ctx context.Context, c *collective.Comm) error {
		if err := collective.Barrier(ctx, c); err != nil {
			return err
		}
		return errors.Join(callInt32(ctx, c, "scan", usual()), callInt32(ctx, c, "reduce", usual()))
	}}
	one := act{"reduce", func(ctx context.Context, c *collective.Comm) error {
		return errors.Join(collective.Barrier(ctx, c), callInt32(ctx, c, "reduce", usual()))
	}}
	positions(func(n, deviant int) { differ(t, n, deviant, two, one) })
}

// If a rank waits in Recv for another rank, and that rank waits for it in a collective call, all
// ranks get a deadlock that names both calls.
func TestDeadlockOfRecvAndCollective(t *testing.T) {
	for _, kind := range kinds() {
		positions(func(n, deviant int) {
			recv := act{"recv", func(ctx context.Context, c *collective.Comm) error {
				return collective.Recv(ctx, c, (deviant+1)%n, 7, make([]int8, 3))
			}}
			synctest.Test(t, func(t *testing.T) {
				errs := cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error {
					return oneOf(ctx, c, deviant, callOf(kind, usual()), recv)
				}, cluster.MayFail())
				for rank, err := range errs {
					var d *collective.DeadlockError
					if !errors.As(err, &d) || !strings.Contains(d.Error(), fmt.Sprintf("rank %d in recv int8[3]", deviant)) || !strings.Contains(d.Error(), "in "+kind) {
						t.Errorf("n=%d, rank %d in Recv, others in %s: rank %d: %v", n, deviant, kind, rank, err)
					}
				}
			})
		})
	}
}

// Mismatches are found in real time as well, on the ordinary scheduler.
func TestMismatchInRealTime(t *testing.T) {
	cases := []variation{
		{callOf("allreduce", usual()), callOf("barrier", usual())},
		{callOf("broadcast", usual()), callOf("reduce", usual())},
		{callOf("gather", usual()), callOf("scatter", usual())},
		{callOf("scan", usual()), callOf("alltoall", usual())},
	}
	for _, v := range append(cases, variations()...) {
		t.Run(v.common.name+" and "+v.other.name, func(t *testing.T) {
			t.Parallel()
			errs := cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
				return oneOf(ctx, c, 1, v.common, v.other)
			}, cluster.MayFail())
			for rank, err := range errs {
				checkMismatch(t, fmt.Sprint("rank ", rank), err, v.common.name, v.other.name)
			}
		})
	}
}
