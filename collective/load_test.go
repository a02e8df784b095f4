package collective_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// call is one collective call under test, the same at all ranks.
type call struct {
	kind      string
	algorithm collective.Algorithm
	// length is the number of elements of the vector that is reduced or broadcast; for
	// other calls, of a rank's part.
	length  int
	root    int
	inPlace bool // dst and src share memory, where the call allows it
	async   bool // the call uses its non-blocking form, which returns a Handle
}

// suite is a set of loads; it hides the type of their elements.
type suite interface {
	typeName() string
	opNames() []string
	// prepare returns the inputs of n ranks for one operation, of length elements per rank,
	// and the expected reductions. For calls that only move data, op is moving.
	prepare(op string, n, length int) runner
}

// moving is the name of the operation of calls without a reduction.
const moving = "moving"

// runner carries out calls at each rank.
type runner interface {
	// run carries out k at the rank of c and compares every element with the expected result.
	run(ctx context.Context, c *collective.Comm, k call) error
	ordered() bool
}

// suites returns one suite for each of the eleven types.
func suites() []suite {
	return []suite{
		typed[int]{integers[int]()}, typed[int8]{integers[int8]()}, typed[int32]{integers[int32]()}, typed[int64]{integers[int64]()},
		typed[uint8]{integers[uint8]()}, typed[uint32]{integers[uint32]()}, typed[uint64]{integers[uint64]()},
		typed[float32]{floats(float32s())}, typed[float64]{floats(float64s())},
		typed[collective.Float16]{floats(float16s())}, typed[collective.BFloat16]{floats(bfloat16s())},
	}
}

type typed[T collective.Number] struct{ ops []reduction[T] }

func (t typed[T]) typeName() string { return dtype.TypeOf[T]().String() }

func (t typed[T]) opNames() []string {
	var names []string
	for _, r := range t.ops {
		names = append(names, r.name)
	}
	return names
}

func (t typed[T]) prepare(op string, n, length int) runner {
	i := max(0, slices.IndexFunc(t.ops, func(r reduction[T]) bool { return r.name == op }))
	l := &vectors[T]{reduction: t.ops[i], in: make([][]T, n), out: make([]func() []T, n)}
	for rank := range n {
		l.in[rank] = make([]T, length)
		for i := range l.in[rank] {
			l.in[rank][i] = l.input(rank, i)
		}
		l.out[rank] = sync.OnceValue(func() []T { return l.reduced(rank) })
	}
	return l
}

// vectors is the load of one type and operation. run does not change it.
type vectors[T collective.Number] struct {
	reduction[T]
	in  [][]T        // by rank
	out []func() []T // by rank: returns the finished reduction of the ranks from 0 to this rank
}

// reduced returns the reduction of the ranks up to last, after the final function.
func (v *vectors[T]) reduced(last int) []T {
	out := slices.Clone(v.in[0])
	for i := range out {
		for _, in := range v.in[1 : last+1] {
			out[i] = v.fold(out[i], in[i])
		}
		if v.finish != nil {
			out[i] = v.finish(out[i], last+1)
		}
	}
	return out
}

func (v *vectors[T]) ordered() bool { return v.reduction.ordered }

func (v *vectors[T]) run(ctx context.Context, c *collective.Comm, k call) error {
	var err error
	on := c.With(collective.CallOptions{Algorithm: k.algorithm})
	switch k.kind {
	case "allreduce", "reduce", "scan", "exscan":
		err = v.whole(ctx, on, k)
	case "reducescatter", "reducescatterv":
		err = v.reduceScatter(ctx, on, k)
	case "broadcast":
		err = v.broadcast(ctx, on, k)
	case "allgather", "allgatherv", "gather", "gatherv":
		err = v.gather(ctx, on, k)
	case "scatter", "scatterv":
		err = v.scatter(ctx, on, k)
	case "alltoall", "alltoallv":
		err = v.allToAll(ctx, on, k)
	case "sendrecv", "exchange", "receiveany":
		err = v.sendRecv(ctx, c, k)
	case "barrier":
		err = k.do(ctx, func() error { return collective.Barrier(ctx, on) },
			func() *collective.Handle { return collective.IBarrier(ctx, on) })
	default:
		err = fmt.Errorf("unknown call")
	}
	if err != nil {
		return fmt.Errorf("%s %s %+v at rank %d of %d: %w", dtype.TypeOf[T](), v.name, k, c.Rank(), c.Size(), err)
	}
	return nil
}

// do carries out a call in its blocking or its non-blocking form.
func (c call) do(ctx context.Context, blocking func() error, start func() *collective.Handle) error {
	if !c.async {
		return blocking()
	}
	return start().Wait(ctx)
}

// whole tests the reductions whose result is a whole vector.
func (v *vectors[T]) whole(ctx context.Context, c *collective.Comm, k call) error {
	rank, n := c.Rank(), c.Size()
	src := slices.Clone(v.in[rank][:k.length])
	dst := src
	if !k.inPlace {
		dst = v.garbage(k.length)
	}
	want, err := v.out[n-1], error(nil)
	switch k.kind {
	case "allreduce":
		err = k.do(ctx, func() error { return collective.AllReduce(ctx, c, dst, src, v.op) },
			func() *collective.Handle { return collective.IAllReduce(ctx, c, dst, src, v.op) })
	case "reduce":
		if rank != k.root {
			want, dst = nil, nil
		}
		err = k.do(ctx, func() error { return collective.Reduce(ctx, c, dst, src, v.op, k.root) },
			func() *collective.Handle { return collective.IReduce(ctx, c, dst, src, v.op, k.root) })
	case "scan":
		want = v.out[rank]
		err = k.do(ctx, func() error { return collective.Scan(ctx, c, dst, src, v.op) },
			func() *collective.Handle { return collective.IScan(ctx, c, dst, src, v.op) })
	case "exscan":
		before := slices.Clone(dst) // at rank 0 dst does not change
		want = func() []T { return before }
		if rank > 0 {
			want = v.out[rank-1]
		}
		err = k.do(ctx, func() error { return collective.ExScan(ctx, c, dst, src, v.op) },
			func() *collective.Handle { return collective.IExScan(ctx, c, dst, src, v.op) })
	}
	if err != nil {
		return err
	}
	if want != nil {
		err = same("result", dst, want()[:k.length])
	}
	if err == nil && (!k.inPlace || dst == nil) {
		err = same("source", src, v.in[rank][:k.length])
	}
	return err
}

func (v *vectors[T]) reduceScatter(ctx context.Context, c *collective.Comm, k call) error {
	rank, n := c.Rank(), c.Size()
	src := slices.Clone(v.in[rank][:k.length])
	first, end := collective.Chunk(k.length, n, rank)
	blocking := func(dst []T) error { return collective.ReduceScatter(ctx, c, dst, src, v.op) }
	start := func(dst []T) *collective.Handle { return collective.IReduceScatter(ctx, c, dst, src, v.op) }
	if k.varied() {
		var counts []int
		counts, first, end = cut(k.length, n, rank)
		blocking = func(dst []T) error { return collective.ReduceScatterV(ctx, c, dst, src, counts, v.op) }
		start = func(dst []T) *collective.Handle { return collective.IReduceScatterV(ctx, c, dst, src, counts, v.op) }
	}
	dst := src[first:end]
	if !k.inPlace {
		dst = v.garbage(end - first)
	}
	err := k.do(ctx, func() error { return blocking(dst) }, func() *collective.Handle { return start(dst) })
	if err == nil {
		err = same("result", dst, v.out[n-1]()[first:end])
	}
	if err == nil {
		in := slices.Clone(v.in[rank][:k.length])
		if k.inPlace {
			copy(in[first:end], dst) // src is intact except for the part that is dst
		}
		err = same("source", src, in)
	}
	return err
}

// cut divides a vector of the given length among n ranks into chunks of very different lengths, some of them zero, and returns
// the lengths and the chunk of a rank.
func cut(length, n, rank int) (counts []int, first, end int) {
	counts = make([]int, n)
	for i, rest := 0, length; i < n; i++ {
		if counts[i] = rest * (i % 3) / 2; i == n-1 {
			counts[i] = rest
		}
		counts[i] = min(counts[i], rest)
		rest -= counts[i]
	}
	for _, count := range counts[:rank] {
		first += count
	}
	return counts, first, first + counts[rank]
}

func (v *vectors[T]) broadcast(ctx context.Context, c *collective.Comm, k call) error {
	want := v.in[k.root][:k.length]
	buf := v.garbage(k.length)
	if c.Rank() == k.root {
		copy(buf, want)
	}
	err := k.do(ctx, func() error { return collective.Broadcast(ctx, c, buf, k.root) },
		func() *collective.Handle { return collective.IBroadcast(ctx, c, buf, k.root) })
	if err != nil {
		return err
	}
	return same("result", buf, want)
}

// counts returns the lengths of the ranks' parts: equal ones or, for calls that allow it,
// different ones, of which some are zero.
func (c call) counts(n int) []int {
	counts := make([]int, n)
	for rank := range counts {
		counts[rank] = c.length
		if c.varied() {
			counts[rank] = (rank*rank + c.length) % (c.length + 1)
		}
	}
	return counts
}

func (c call) varied() bool { return c.kind[len(c.kind)-1] == 'v' && c.kind != "sendrecv" }

// parts returns the concatenation of the first counts[rank] elements of every rank's input,
// and the bounds of the part of rank.
func (v *vectors[T]) parts(counts []int, rank int) (all []T, first, end int) {
	sum := 0
	for _, n := range counts {
		sum += n
	}
	all = make([]T, 0, sum)
	for i, n := range counts {
		if i == rank {
			first, end = len(all), len(all)+n
		}
		all = append(all, v.in[i][:n]...)
	}
	return all, first, end
}

// gather tests the gathers to one rank and to all ranks.
func (v *vectors[T]) gather(ctx context.Context, c *collective.Comm, k call) error {
	counts := k.counts(c.Size())
	want, first, end := v.parts(counts, c.Rank())
	toAll := k.kind == "allgather" || k.kind == "allgatherv"
	var dst []T
	if toAll || c.Rank() == k.root {
		dst = v.garbage(len(want))
	}
	src := slices.Clone(want[first:end])
	if k.inPlace && dst != nil {
		src = dst[first:end]
		copy(src, want[first:end])
	}
	var err error
	switch k.kind {
	case "allgather":
		err = k.do(ctx, func() error { return collective.AllGather(ctx, c, dst, src) },
			func() *collective.Handle { return collective.IAllGather(ctx, c, dst, src) })
	case "allgatherv":
		err = k.do(ctx, func() error { return collective.AllGatherV(ctx, c, dst, src, counts) },
			func() *collective.Handle { return collective.IAllGatherV(ctx, c, dst, src, counts) })
	case "gather":
		err = k.do(ctx, func() error { return collective.Gather(ctx, c, dst, src, k.root) },
			func() *collective.Handle { return collective.IGather(ctx, c, dst, src, k.root) })
	case "gatherv":
		err = k.do(ctx, func() error { return collective.GatherV(ctx, c, dst, src, counts, k.root) },
			func() *collective.Handle { return collective.IGatherV(ctx, c, dst, src, counts, k.root) })
	}
	if err == nil && dst != nil {
		err = same("result", dst, want)
	}
	if err == nil {
		err = same("source", src, want[first:end])
	}
	return err
}

func (v *vectors[T]) scatter(ctx context.Context, c *collective.Comm, k call) error {
	counts := k.counts(c.Size())
	all, first, end := v.parts(counts, c.Rank())
	dst := v.garbage(end - first)
	var src []T
	if c.Rank() == k.root {
		src = slices.Clone(all)
		if k.inPlace {
			dst = src[first:end]
		}
	}
	var err error
	if k.varied() {
		err = k.do(ctx, func() error { return collective.ScatterV(ctx, c, dst, src, counts, k.root) },
			func() *collective.Handle { return collective.IScatterV(ctx, c, dst, src, counts, k.root) })
	} else {
		err = k.do(ctx, func() error { return collective.Scatter(ctx, c, dst, src, k.root) },
			func() *collective.Handle { return collective.IScatter(ctx, c, dst, src, k.root) })
	}
	if err == nil {
		err = same("result", dst, all[first:end])
	}
	if err == nil && src != nil {
		err = same("source", src, all)
	}
	return err
}

// allToAll sends rank i the elements of the caller's input from i*length on: length elements, or in alltoallv a number that
// depends on both ranks.
func (v *vectors[T]) allToAll(ctx context.Context, c *collective.Comm, k call) error {
	rank, n := c.Rank(), c.Size()
	sent := func(from, to int) int { return k.length }
	if k.varied() {
		sent = func(from, to int) int { return (from*from + 3*to + k.length) % (k.length + 1) }
	}
	var in, src, want []T
	recvCounts, sendCounts := make([]int, n), make([]int, n)
	for i := range n {
		sendCounts[i], recvCounts[i] = sent(rank, i), sent(i, rank)
		in = append(in, v.in[rank][i*k.length:][:sendCounts[i]]...)
		want = append(want, v.in[i][rank*k.length:][:recvCounts[i]]...)
	}
	src = slices.Clone(in)
	dst := v.garbage(len(want))
	var err error
	if k.varied() {
		err = k.do(ctx, func() error { return collective.AllToAllV(ctx, c, dst, src, recvCounts, sendCounts) },
			func() *collective.Handle { return collective.IAllToAllV(ctx, c, dst, src, recvCounts, sendCounts) })
	} else {
		err = k.do(ctx, func() error { return collective.AllToAll(ctx, c, dst, src) },
			func() *collective.Handle { return collective.IAllToAll(ctx, c, dst, src) })
	}
	if err == nil {
		err = same("result", dst, want)
	}
	if err == nil {
		err = same("source", src, in)
	}
	return err
}

// sendRecv sends to the rank that is k.root ranks above the caller's, and receives from the rank
// that is k.root ranks below. Either may be the caller's own rank.
func (v *vectors[T]) sendRecv(ctx context.Context, c *collective.Comm, k call) error {
	rank, n := c.Rank(), c.Size()
	to, from := (rank+k.root)%n, (rank-k.root+n)%n
	src, dst := slices.Clone(v.in[rank][:k.length]), v.garbage(k.length)
	var err error
	switch {
	case k.kind == "exchange":
		err = collective.SendRecv(ctx, c, collective.Peers{To: to, From: from}, k.length, dst, src)
	case k.kind == "receiveany":
		err = v.receiveAny(ctx, c, k, dst, src)
	default:
		sent := collective.ISend(ctx, c, to, k.length, src)
		err = k.do(ctx, func() error { return collective.Recv(ctx, c, from, k.length, dst) },
			func() *collective.Handle { return collective.IRecv(ctx, c, from, k.length, dst) })
		if serr := sent.Wait(ctx); err == nil {
			err = serr
		}
	}
	if err == nil {
		err = same("result", dst, v.in[from][:k.length])
	}
	if err == nil {
		err = same("source", src, v.in[rank][:k.length])
	}
	return err
}

// receiveAny is sendRecv in which the receiver does not know the sender, and either the tag or the
// length. The barrier keeps the messages of later calls away.
func (v *vectors[T]) receiveAny(ctx context.Context, c *collective.Comm, k call, dst, src []T) error {
	rank, n := c.Rank(), c.Size()
	sent := collective.ISend(ctx, c, (rank+k.root)%n, k.length, src)
	var m collective.Message
	var err error
	if k.async {
		h := collective.IRecv(ctx, c, collective.AnySource, collective.AnyTag, dst)
		err = collective.WaitAll(ctx, h, sent)
		m = h.Message()
	} else {
		if m, err = collective.Probe(ctx, c, collective.AnySource, k.length); err == nil {
			err = collective.Recv(ctx, c, m.From, m.Tag, dst)
		}
		err = errors.Join(err, sent.Wait(ctx))
	}
	want := collective.Message{From: (rank - k.root + n) % n, Tag: k.length, Len: k.length, Type: dtype.TypeOf[T]()}
	if err == nil && m != want {
		err = fmt.Errorf("message %+v, want %+v", m, want)
	}
	return errors.Join(err, collective.Barrier(ctx, c))
}

// garbage returns a vector of values that are no result.
func (l *vectors[T]) garbage(n int) []T {
	v := make([]T, n)
	for i := range v {
		v[i] = 99
	}
	return v
}

// same compares two vectors bit by bit.
func same[T collective.Number](what string, got, want []T) error {
	if bytes.Equal(kernel.Bytes(got), kernel.Bytes(want)) {
		return nil
	}
	if len(got) != len(want) {
		return fmt.Errorf("%s has %d elements, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("%s: element %d of %d is %v, want %v", what, i, len(got), got[i], want[i])
		}
	}
	return fmt.Errorf("%s: other bits", what)
}
