package collective_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/testing/cluster"
)

// wide is a reduction of groups of elements, which the reference folds rank by rank over whole vectors.
type wide[T collective.Number] struct {
	name  string
	width int
	op    collective.Op[T]
	fold  func(dst, a, b []T)
}

// wides lists the reductions of width 2, and reductions of width 3 by NewOp of which one does not commute. Each fold panics if a
// group is cut.
func wides[T collective.Number]() []wide[T] {
	whole := func(fold func(dst, a, b []T)) func(dst, a, b []T) {
		return func(dst, a, b []T) {
			if len(dst)%3 != 0 {
				panic(fmt.Sprintf("%d elements of groups of 3", len(dst)))
			}
			fold(dst, a, b)
		}
	}
	largest := whole(func(dst, a, b []T) { // the group with the greater last element
		for i := 0; i < len(dst); i += 3 {
			from := a[i : i+3]
			if b[i+2] > a[i+2] {
				from = b[i : i+3]
			}
			copy(dst[i:], from)
		}
	})
	ends := whole(func(dst, a, b []T) { // the first element of the lowest rank, the last of the highest
		for i := 0; i < len(dst); i += 3 {
			dst[i], dst[i+1], dst[i+2] = a[i], a[i+1]+b[i+1], b[i+2]
		}
	})
	return []wide[T]{
		{"minloc", 2, collective.MinLoc[T], collective.MinLoc[T]().Fold},
		{"maxloc", 2, collective.MaxLoc[T], collective.MaxLoc[T]().Fold},
		{"largest", 3, collective.NewOp("largest", true, largest).OfWidth(3), largest},
		{"ends", 3, collective.NewOp("ends", false, ends).OfWidth(3), ends},
	}
}

// element is an element of a rank's vector. Few values occur, so that pairs often have equal values.
func (w wide[T]) element(rank, i int) T {
	if w.name == "largest" && i%3 == 2 {
		return kernel.FromFloat64[T](float64((rank*5 + i) % 11)) // different at all ranks
	}
	if i%2 == 1 && w.width == 2 {
		return kernel.FromFloat64[T](float64(rank))
	}
	return kernel.FromFloat64[T](float64((rank*7 + i*3) % 4))
}

// vector returns the vector of a rank.
func (w wide[T]) vector(rank, length int) []T {
	v := make([]T, length)
	for i := range v {
		v[i] = w.element(rank, i)
	}
	return v
}

// reduced folds the vectors of the ranks up to last.
func (w wide[T]) reduced(last, length int) []T {
	all := w.vector(0, length)
	for rank := 1; rank <= last; rank++ {
		w.fold(all, all, w.vector(rank, length))
	}
	return all
}

// run makes a call in one way and compares the result.
func (w wide[T]) run(ctx context.Context, c *collective.Comm, k way, length int) error {
	on := c.With(collective.CallOptions{Algorithm: k.algorithm})
	src := w.vector(c.Rank(), length)
	dst, want := make([]T, length), w.reduced(c.Size()-1, length)
	var err error
	switch k.kind {
	case "allreduce":
		err = collective.AllReduce(ctx, on, dst, src, w.op)
	case "reduce":
		if err = collective.Reduce(ctx, on, dst, src, w.op, c.Size()-1); c.Rank() != c.Size()-1 {
			want = dst
		}
	case "scan":
		want = w.reduced(c.Rank(), length)
		err = collective.Scan(ctx, on, dst, src, w.op)
	case "exscan":
		if want = dst; c.Rank() > 0 {
			want = w.reduced(c.Rank()-1, length)
		}
		err = collective.ExScan(ctx, on, dst, src, w.op)
	case "reducescatter":
		first, end := collective.Chunk(length/w.width, c.Size(), c.Rank())
		dst, want = dst[:(end-first)*w.width], want[first*w.width:end*w.width]
		err = collective.ReduceScatter(ctx, on, dst, src, w.op)
	case "reducescatterv":
		counts, first, end := cut(length/w.width, c.Size(), c.Rank())
		for i := range counts {
			counts[i] *= w.width
		}
		dst, want = dst[:(end-first)*w.width], want[first*w.width:end*w.width]
		err = collective.ReduceScatterV(ctx, on, dst, src, counts, w.op)
	}
	if err == nil {
		err = same("result", dst, want)
	}
	if err != nil {
		return fmt.Errorf("%s %v of %d elements at rank %d of %d: %w", w.name, k, length, c.Rank(), c.Size(), err)
	}
	return nil
}

// runWides makes all calls with elements of T.
func runWides[T collective.Number](ctx context.Context, c *collective.Comm) error {
	for _, w := range wides[T]() {
		for _, k := range ways(reducing(), !w.op().Commutative) {
			for _, groups := range []int{0, 1, c.Size() - 1, c.Size() + 1, 41, 3000} {
				if err := w.run(ctx, c, k, groups*w.width); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// No reduction of a width is cut within a group: by any call, algorithm, type, segment, number of ranks or transport, in shared
// memory and over several hosts.
func TestMatrixOfWidths(t *testing.T) {
	t.Parallel()
	run := func(name string, ts []transport.Transport, segment int) {
		t.Run(name, func(t *testing.T) {
			errs := cluster.Run(t, len(ts), func(ctx context.Context, c *collective.Comm) error {
				return errors.Join(runWides[int8](ctx, c), runWides[int](ctx, c), runWides[float32](ctx, c), runWides[collective.Float16](ctx, c))
			}, cluster.Over(ts), cluster.WithOptions(collective.Options{Segment: segment}), cluster.MayFail())
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
		})
	}
	for _, n := range []int{1, 2, 3, 4, 5, 7} {
		run(fmt.Sprint("messages ", n), messages(n), 0)
		run(fmt.Sprint("memory ", n), sharing(t, n), 0)
	}
	for _, path := range []string{"direct", "p2p"} {
		run("p2p by "+path, cluster.NewHostsBy(t, 3, path).Transports(t), 0)
	}
	run("segments of 8 bytes", messages(3), 8)
	run("segments of 64 bytes", messages(4), 64)
	run("hosts", sharing(t, 2, 3, 1), 64)
}

// Long vectors in the memory that ranks share are reduced in whole groups, too, wherever they begin in a page.
func TestWidthsInArenas(t *testing.T) {
	t.Parallel()
	const length = 6 * 20_000
	overShared(t, 3, func(ctx context.Context, c *collective.Comm) error {
		v, err := collective.Alloc[int8](c, length+64)
		if err != nil {
			return err
		}
		for _, w := range wides[int8]() {
			for _, offset := range []int{0, 1, 2, 7, 64} {
				at := v[offset:][:length]
				copy(at, w.vector(c.Rank(), length))
				if err := collective.AllReduce(ctx, c, at, at, w.op); err != nil {
					return err
				}
				if err := same(fmt.Sprint(w.name, " from ", offset), at, w.reduced(c.Size()-1, length)); err != nil {
					return err
				}
			}
		}
		return collective.Free(c, v)
	})
}

// A length that is no multiple of the width is an ErrArgument, and so is a width that is too large. Ranks with different widths
// get a mismatch.
func TestWidthArguments(t *testing.T) {
	add := func(dst, a, b []int32) {
		for i := range dst {
			dst[i] = a[i] + b[i]
		}
	}
	op := collective.NewOp("add", true, add)
	for name, c := range map[string]struct {
		ops    [2]collective.Op[int32]
		length int
		want   error
	}{
		"odd length":      {[2]collective.Op[int32]{op.OfWidth(2), op.OfWidth(2)}, 7, collective.ErrArgument},
		"too wide":        {[2]collective.Op[int32]{op.OfWidth(64), op.OfWidth(64)}, 64, collective.ErrArgument},
		"different width": {[2]collective.Op[int32]{op.OfWidth(2), op.OfWidth(4)}, 8, collective.ErrMismatch},
		"as it should be": {[2]collective.Op[int32]{op.OfWidth(2), op.OfWidth(2)}, 8, nil},
	} {
		errs := cluster.Run(t, 2, func(ctx context.Context, comm *collective.Comm) error {
			v := make([]int32, c.length)
			return collective.AllReduce(ctx, comm, v, v, c.ops[comm.Rank()])
		}, cluster.MayFail())
		if !slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, c.want) }) {
			t.Errorf("%s: %v, want %v", name, errs, c.want)
		}
	}
}
