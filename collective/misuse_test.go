package collective_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/testing/cluster"
)

// misuse is a call by all ranks, with a name for error messages. The tests make it wrong by its
// arguments or its communicator.
type misuse struct {
	name string
	do   func(ctx context.Context, c *collective.Comm, v []int64) error // v has 12 elements for each rank
}

// nothing returns communicators that New did not make.
func nothing() map[string]*collective.Comm {
	return map[string]*collective.Comm{"nil": nil, "zero": {}, "form of nil": (*collective.Comm)(nil).With(collective.CallOptions{For: "x"})}
}

// everyCall makes each call with the given operation and n elements; all other arguments
// are right.
func everyCall(n int, op collective.Op[int64]) []misuse {
	type comm = *collective.Comm
	type v = []int64
	size := func(c comm) int { return max(1, c.Size()) }
	counts := func(c comm) []int {
		all := make([]int, size(c))
		for i := range all {
			all[i] = n
		}
		return all
	}
	mine := func(c comm) int { first, end := collective.Chunk(n, size(c), max(0, c.Rank())); return end - first }
	return append([]misuse{
		{"allreduce", func(ctx context.Context, c comm, w v) error { return collective.AllReduce(ctx, c, w[:n], w[:n], op) }},
		{"reduce", func(ctx context.Context, c comm, w v) error { return collective.Reduce(ctx, c, w[:n], w[:n], op, 0) }},
		{"reducescatter", func(ctx context.Context, c comm, w v) error {
			return collective.ReduceScatter(ctx, c, make(v, mine(c)), w[:n], op)
		}},
		{"scan", func(ctx context.Context, c comm, w v) error { return collective.Scan(ctx, c, w[:n], w[:n], op) }},
		{"exscan", func(ctx context.Context, c comm, w v) error { return collective.ExScan(ctx, c, w[:n], w[:n], op) }},
		{"broadcast", func(ctx context.Context, c comm, w v) error { return collective.Broadcast(ctx, c, w[:n], 0) }},
		{"allgather", func(ctx context.Context, c comm, w v) error {
			return collective.AllGather(ctx, c, make(v, n*size(c)), w[:n])
		}},
		{"allgatherv", func(ctx context.Context, c comm, w v) error {
			return collective.AllGatherV(ctx, c, make(v, n*size(c)), w[:n], counts(c))
		}},
		{"gather", func(ctx context.Context, c comm, w v) error {
			return collective.Gather(ctx, c, make(v, n*size(c)), w[:n], 0)
		}},
		{"gatherv", func(ctx context.Context, c comm, w v) error {
			return collective.GatherV(ctx, c, make(v, n*size(c)), w[:n], counts(c), 0)
		}},
		{"scatter", func(ctx context.Context, c comm, w v) error {
			return collective.Scatter(ctx, c, w[:n], make(v, n*size(c)), 0)
		}},
		{"scatterv", func(ctx context.Context, c comm, w v) error {
			return collective.ScatterV(ctx, c, w[:n], make(v, n*size(c)), counts(c), 0)
		}},
		{"alltoall", func(ctx context.Context, c comm, w v) error {
			return collective.AllToAll(ctx, c, make(v, n*size(c)), make(v, n*size(c)))
		}},
		{"coded", func(ctx context.Context, c comm, _ v) error {
			return collective.AllReduceCoded(ctx, c, make([]float32, n), make([]float32, n), first{})
		}},
		{"barrier", func(ctx context.Context, c comm, _ v) error { return collective.Barrier(ctx, c) }},
		{"send", func(ctx context.Context, c comm, w v) error { return collective.Send(ctx, c, 0, 0, w[:n]) }},
		{"recv", func(ctx context.Context, c comm, w v) error { return collective.Recv(ctx, c, 0, 0, w[:n]) }},
		{"split", func(ctx context.Context, c comm, _ v) error { _, err := collective.Split(ctx, c, 0, 0); return err }},
		{"dup", func(ctx context.Context, c comm, _ v) error { _, err := collective.Dup(ctx, c); return err }},
	}, callsOfMessages(n)...)
}

// callsOfMessages are the calls of everyCall with messages or values.
func callsOfMessages(n int) []misuse {
	type comm = *collective.Comm
	type v = []int64
	return []misuse{
		{"exchange", func(ctx context.Context, c comm, w v) error {
			return collective.SendRecv(ctx, c, collective.Peers{}, 0, w[:n], w[n:2*n])
		}},
		{"probe", func(ctx context.Context, c comm, _ v) error {
			_, err := collective.Probe(ctx, c, collective.AnySource, 0)
			return err
		}},
		{"broadcastvalue", func(ctx context.Context, c comm, _ v) error {
			return collective.BroadcastValue(ctx, c, new(string), 0)
		}},
		{"gathervalues", func(ctx context.Context, c comm, _ v) error {
			_, err := collective.GatherValues(ctx, c, "x", 0)
			return err
		}},
	}
}

// started makes each call in the form that returns a Handle.
func started(op collective.Op[int64]) []misuse {
	type comm = *collective.Comm
	type v = []int64
	one := []int{1}
	return []misuse{
		{"iallreduce", func(ctx context.Context, c comm, w v) error {
			return collective.IAllReduce(ctx, c, w[:1], w[:1], op).Wait(ctx)
		}},
		{"ireduce", func(ctx context.Context, c comm, w v) error {
			return collective.IReduce(ctx, c, w[:1], w[:1], op, 0).Wait(ctx)
		}},
		{"ireducescatter", func(ctx context.Context, c comm, w v) error {
			return collective.IReduceScatter(ctx, c, w[:1], w[:1], op).Wait(ctx)
		}},
		{"iscan", func(ctx context.Context, c comm, w v) error {
			return collective.IScan(ctx, c, w[:1], w[:1], op).Wait(ctx)
		}},
		{"iexscan", func(ctx context.Context, c comm, w v) error {
			return collective.IExScan(ctx, c, w[:1], w[:1], op).Wait(ctx)
		}},
		{"ibroadcast", func(ctx context.Context, c comm, w v) error { return collective.IBroadcast(ctx, c, w, 0).Wait(ctx) }},
		{"iallgather", func(ctx context.Context, c comm, w v) error {
			return collective.IAllGather(ctx, c, w[:1], w[:1]).Wait(ctx)
		}},
		{"iallgatherv", func(ctx context.Context, c comm, w v) error {
			return collective.IAllGatherV(ctx, c, w[:1], w[:1], one).Wait(ctx)
		}},
		{"igather", func(ctx context.Context, c comm, w v) error {
			return collective.IGather(ctx, c, w[:1], w[:1], 0).Wait(ctx)
		}},
		{"igatherv", func(ctx context.Context, c comm, w v) error {
			return collective.IGatherV(ctx, c, w[:1], w[:1], one, 0).Wait(ctx)
		}},
		{"iscatter", func(ctx context.Context, c comm, w v) error {
			return collective.IScatter(ctx, c, w[:1], w[:1], 0).Wait(ctx)
		}},
		{"iscatterv", func(ctx context.Context, c comm, w v) error {
			return collective.IScatterV(ctx, c, w[:1], w[:1], one, 0).Wait(ctx)
		}},
		{"ialltoall", func(ctx context.Context, c comm, w v) error {
			return collective.IAllToAll(ctx, c, w[:1], w[1:2]).Wait(ctx)
		}},
		{"icoded", func(ctx context.Context, c comm, _ v) error {
			return collective.IAllReduceCoded(ctx, c, make([]float32, 1), make([]float32, 1), first{}).Wait(ctx)
		}},
		{"ibarrier", func(ctx context.Context, c comm, _ v) error { return collective.IBarrier(ctx, c).Wait(ctx) }},
		{"isend", func(ctx context.Context, c comm, w v) error { return collective.ISend(ctx, c, 0, 0, w).Wait(ctx) }},
		{"irecv", func(ctx context.Context, c comm, w v) error { return collective.IRecv(ctx, c, 0, 0, w).Wait(ctx) }},
	}
}

// Every call and every method on a nil or zero communicator returns an error and does not
// panic.
func TestNoCommunicator(t *testing.T) {
	t.Parallel()
	for name, c := range nothing() {
		for _, m := range append(everyCall(3, collective.Sum[int64]), started(collective.Sum[int64])...) {
			if err := m.do(t.Context(), c, make([]int64, 12)); !errors.Is(err, collective.ErrArgument) {
				t.Errorf("%s of a %s communicator: %v", m.name, name, err)
			}
		}
		if err := methodsOf(t.Context(), c); err != nil {
			t.Errorf("%s communicator: %v", name, err)
		}
	}
	if c, err := collective.New(nil, 0, 1, collective.Options{}); !errors.Is(err, collective.ErrArgument) {
		t.Errorf("over no transport: %v, %v", c, err)
	}
}

// methodsOf calls every method of a nil or zero communicator.
func methodsOf(ctx context.Context, c *collective.Comm) error {
	_, errAlloc := collective.Alloc[int64](c, 4)
	_, errChoice := c.Choice(transport.KindAllReduce, 8, true)
	for i, err := range []error{errAlloc, errChoice, c.Err(), c.Calibrate(ctx)} {
		if !errors.Is(err, collective.ErrArgument) {
			return fmt.Errorf("error %d: %w", i, orMissing(err))
		}
	}
	c.Revoke(errTired)
	sent, plain := c.CodedBytes(10, first{})
	none := []bool{c.Rank() == -1, c.Size() == 0, c.Meter() == nil, !c.SharesMemory(), !c.SameMemory(c),
		!collective.IsShared(c, make([]int64, 1)), c.Cost() == collective.Cost{}, sent == 0, plain == 0}
	for i, ok := range none {
		if !ok {
			return fmt.Errorf("getter %d tells something", i)
		}
	}
	for i, o := range []collective.CallOptions{{}, {Algorithm: collective.Ring}, {For: "x"}, {Priority: 1}, {Interruptible: true}, {Order: []int{0}}} {
		if err := collective.Barrier(ctx, c.With(o)); !errors.Is(err, collective.ErrArgument) {
			return fmt.Errorf("form %d: %w", i, orMissing(err))
		}
	}
	return errors.Join(c.Close(), collective.Free(c, make([]int64, 1)))
}

// Done and Wait of a nil or zero Handle return at once, Wait with an error.
func TestNoHandle(t *testing.T) {
	t.Parallel()
	for _, h := range []*collective.Handle{nil, {}} {
		<-h.Done()
		if err := h.Wait(t.Context()); !errors.Is(err, collective.ErrArgument) {
			t.Errorf("%v", err)
		}
		done, err := h.Test()
		i, errAny := collective.WaitAny(t.Context(), nil, &collective.Handle{}, nil)
		if !done || !errors.Is(err, collective.ErrArgument) || i != 1 || !errors.Is(errAny, collective.ErrArgument) || h.Message() != (collective.Message{}) {
			t.Errorf("Test: %v, %v; WaitAny: %d, %v", done, err, i, errAny)
		}
	}
	i, err := collective.WaitAny(t.Context(), nil, nil)
	if err := errors.Join(err, collective.WaitAll(t.Context(), nil, nil)); err != nil || i != -1 {
		t.Errorf("no handles: %d, %v", i, err)
	}
}

// wrongCalls are calls whose arguments are wrong at every rank.
func wrongCalls() []misuse {
	type comm = *collective.Comm
	type v = []int64
	sum := collective.Sum[int64]
	all := []misuse{
		{"nil coding", func(ctx context.Context, c comm, _ v) error {
			return collective.AllReduceCoded(ctx, c, make([]float32, 2), make([]float32, 2), nil)
		}},
		{"counts beyond all", func(ctx context.Context, c comm, w v) error {
			counts := make([]int, c.Size())
			counts[0], counts[c.Size()-1] = math.MaxInt, math.MaxInt
			return collective.AllGatherV(ctx, c, w, w, counts)
		}},
		{"no counts", func(ctx context.Context, c comm, w v) error { return collective.ScatterV(ctx, c, w[:1], w, nil, 0) }},
		{"root beyond", func(ctx context.Context, c comm, w v) error { return collective.Broadcast(ctx, c, w, c.Size()) }},
		{"negative tag", func(ctx context.Context, c comm, w v) error { return collective.Send(ctx, c, 0, -1, w) }},
		{"overlap in allreduce", func(ctx context.Context, c comm, w v) error { return collective.AllReduce(ctx, c, w[:6], w[1:7], sum) }},
		{"overlap in reduce", func(ctx context.Context, c comm, w v) error {
			return collective.Reduce(ctx, c, w[1:7], w[:6], sum, c.Rank())
		}},
		{"overlap in scan", func(ctx context.Context, c comm, w v) error { return collective.Scan(ctx, c, w[5:10], w[1:6], sum) }},
		{"overlap in exscan", func(ctx context.Context, c comm, w v) error { return collective.ExScan(ctx, c, w[1:6], w[5:10], sum) }},
		{"overlap in reducescatter", func(ctx context.Context, c comm, w v) error {
			return collective.ReduceScatter(ctx, c, w[1:3], w[:2*c.Size()], sum)
		}},
		{"overlap in allgather", func(ctx context.Context, c comm, w v) error {
			return collective.AllGather(ctx, c, w[:2*c.Size()], w[1:3])
		}},
		{"overlap in gather", func(ctx context.Context, c comm, w v) error {
			return collective.Gather(ctx, c, w[:2*c.Size()], w[1:3], c.Rank())
		}},
		{"overlap in scatter", func(ctx context.Context, c comm, w v) error {
			return collective.Scatter(ctx, c, w[1:3], w[:2*c.Size()], c.Rank())
		}},
		{"alltoall in place", func(ctx context.Context, c comm, w v) error {
			return collective.AllToAll(ctx, c, w[:2*c.Size()], w[:2*c.Size()])
		}},
		{"coded in place", func(ctx context.Context, c comm, _ v) error {
			w := make([]float32, 4)
			return collective.AllReduceCoded(ctx, c, w, w, first{})
		}},
	}
	all = append(all, wrongMessages()...)
	var none context.Context
	for _, m := range everyCall(3, sum) {
		all = append(all, misuse{"nil context in " + m.name, func(_ context.Context, c comm, w v) error {
			return m.do(none, c, w)
		}})
	}
	for name, op := range map[string]collective.Op[int64]{"nil": nil, "zero": func() collective.Reduction[int64] { return collective.Reduction[int64]{} },
		"empty": collective.NewOp[int64]("empty", true, nil)} {
		for _, m := range everyCall(3, op)[:5] {
			all = append(all, misuse{name + " op in " + m.name, m.do})
		}
	}
	return all
}

// wrongMessages are the calls of wrongCalls with messages or values.
func wrongMessages() []misuse {
	type comm = *collective.Comm
	type v = []int64
	return []misuse{
		{"rank -1", func(ctx context.Context, c comm, w v) error { return collective.Recv(ctx, c, -1, 0, w) }},
		{"probe of tag -1", func(ctx context.Context, c comm, _ v) error { _, err := collective.Probe(ctx, c, 0, -1); return err }},
		{"send to any rank", func(ctx context.Context, c comm, w v) error {
			return collective.Send(ctx, c, collective.AnySource, 0, w)
		}},
		{"send of any tag", func(ctx context.Context, c comm, w v) error { return collective.Send(ctx, c, 0, collective.AnyTag, w) }},
		{"overlap in exchange", func(ctx context.Context, c comm, w v) error {
			return collective.SendRecv(ctx, c, collective.Peers{}, 0, w[1:3], w[:2])
		}},
		{"value without a type that gob knows", func(ctx context.Context, c comm, _ v) error {
			_, err := collective.GatherValues(ctx, c, struct{ hidden int }{1}, 0)
			return err
		}},
		{"no value", func(ctx context.Context, c comm, _ v) error { return collective.BroadcastValue[int](ctx, c, nil, 0) }},
	}
}

// Wrong arguments give an ErrArgument with an explanation at all ranks: each rank gets its own
// error, or the error of the rank that failed first.
func TestWrongCalls(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		for where, connect := range everywhere(t, n) {
			t.Run(fmt.Sprintf("%s/%d", where, n), func(t *testing.T) {
				t.Parallel()
				for _, m := range wrongCalls() {
					errs := cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error {
						return m.do(ctx, c, make([]int64, 12*c.Size()))
					}, cluster.Over(connect()), cluster.MayFail())
					for rank, err := range errs {
						if !errors.Is(err, collective.ErrArgument) || !errors.Is(err, collective.ErrRevoked) {
							t.Errorf("%s: rank %d: %v", m.name, rank, err)
						}
					}
				}
			})
		}
	}
}

// wrongRank is a wrong action of one rank while the other ranks make a call. The error at each rank
// must contain one of the words.
type wrongRank struct {
	name  string
	do    func(ctx context.Context, c *collective.Comm, v []int64) error
	words []string
}

// differing returns actions that a rank can take in place of call i of everyCall.
func differing(i int) []wrongRank {
	type comm = *collective.Comm
	type v = []int64
	mismatch := []string{collective.ErrMismatch.Error(), "elements, want"} // the second text: a length does not fit the call
	return []wrongRank{
		{"length", everyCall(4, collective.Sum[int64])[i].do, mismatch},
		{"type", func(ctx context.Context, c comm, _ v) error {
			return collective.AllReduce(ctx, c, make([]int32, 3), make([]int32, 3), collective.Sum[int32])
		}, mismatch},
		{"op", func(ctx context.Context, c comm, w v) error {
			return collective.AllReduce(ctx, c, w[:3], w[:3], collective.Max[int64])
		}, mismatch},
		{"close", func(_ context.Context, c comm, _ v) error { return errors.Join(c.Close(), errTired) }, []string{"closed", "tired"}},
		{"revoke", func(_ context.Context, c comm, _ v) error { c.Revoke(errTired); return errTired }, []string{"tired"}},
	}
}

// If one rank makes a different call, closes or revokes, each rank gets an error that names the
// mistake.
func TestCallsThatDiffer(t *testing.T) {
	t.Parallel()
	for where, connect := range everywhere(t, 3) {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			for i, m := range everyCall(3, collective.Sum[int64])[:13] {
				for _, other := range differing(i) {
					errs := cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
						if c.Rank() == 1 {
							return other.do(ctx, c, make([]int64, 36))
						}
						return m.do(ctx, c, make([]int64, 36))
					}, cluster.Over(connect()), cluster.MayFail())
					for rank, err := range errs {
						names := func(word string) bool { return err != nil && strings.Contains(err.Error(), word) }
						if !slices.ContainsFunc(other.words, names) {
							t.Errorf("%s, other %s: rank %d: %v", m.name, other.name, rank, err)
						}
					}
				}
			}
		})
	}
}

// Each call refuses a vector from Alloc that was freed.
func TestFreedVector(t *testing.T) {
	t.Parallel()
	for _, perHost := range [][]int{{3}, {2, 2}} {
		for _, m := range everyCall(5000, collective.Sum[int64])[:12] {
			ts := sharing(t, perHost...)
			errs := cluster.Run(t, len(ts), func(ctx context.Context, c *collective.Comm) error {
				v, err := collective.Alloc[int64](c, 15000)
				if err != nil {
					return err
				}
				if err := collective.Free(c, v); err != nil {
					return err
				}
				if err := collective.Free(c, v); err == nil {
					return errors.New("freed twice")
				}
				return m.do(ctx, c, v)
			}, cluster.Over(ts), cluster.MayFail())
			for rank, err := range errs {
				if err == nil || !strings.Contains(err.Error(), "freed before the call") {
					t.Errorf("%s: %v: rank %d: %v", m.name, perHost, rank, err)
				}
			}
		}
	}
}

// A call accepts a vector that another rank allocated, or that was allocated on a communicator that
// is now closed, like any other vector.
func TestForeignVector(t *testing.T) {
	t.Parallel()
	for where, connect := range everywhere(t, 3) {
		var given [3]chan []int64
		for i := range given {
			given[i] = make(chan []int64, 1)
		}
		errs := cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
			dup, err := collective.Dup(ctx, c)
			if err != nil {
				return err
			}
			own, err := collective.Alloc[int64](dup, 5000)
			given[c.Rank()] <- own // also if Alloc failed: another rank waits for it
			if err := errors.Join(err, dup.Close(), collective.Barrier(ctx, c)); err != nil {
				return err
			}
			v := <-given[(c.Rank()+1)%3]
			for i := range v {
				v[i] = int64(i)
			}
			if err := collective.AllReduce(ctx, c, v, v, collective.Sum[int64]); err != nil {
				return err
			}
			for i := range v {
				if v[i] != int64(3*i) {
					return fmt.Errorf("element %d is %d", i, v[i])
				}
			}
			given[(c.Rank()+1)%3] <- v
			return collective.Free(c, <-given[c.Rank()]) // the vector that this rank allocated
		}, cluster.Over(connect()), cluster.MayFail())
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
}

// Alloc on a closed communicator returns ErrClosed.
func TestAllocAfterClose(t *testing.T) {
	t.Parallel()
	for where, connect := range everywhere(t, 1) {
		for _, e := range connect() {
			c, err := collective.New(e, 0, 1, collective.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if v, err := collective.Alloc[int64](c, 10); !errors.Is(err, collective.ErrClosed) {
				t.Errorf("%s: %d elements, %v", where, len(v), err)
			}
		}
	}
}
