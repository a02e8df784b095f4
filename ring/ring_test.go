package ring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// same reports whether two vectors have the same bits, so a NaN is equal to itself.
func same[T Number](a, b []T) bool { return bytes.Equal(kernel.Bytes(a), kernel.Bytes(b)) }

// lengths returns lengths near the number of ranks, with which some chunks are empty, and one large
// length.
func lengths(size int) []int { return []int{0, 1, size - 1, size, size + 1, 1000} }

// forRanks runs f for 1 to 9 ranks in a synctest bubble, in which a hang fails at once.
func forRanks(t *testing.T, f func(t *testing.T, size int)) {
	t.Helper()
	for size := 1; size <= 9; size++ {
		t.Run(fmt.Sprintf("ranks=%d", size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, size) })
		})
	}
}

// testAllReduce checks the results at all ranks, in place and not in place, and checks that src has not changed.
func testAllReduce[T Number](t rapid.TB, rings []Ring, all [][]T, op Reduction[T]) {
	t.Helper()
	want := reduced(all, op)
	mustEveryRank(t, rings, func(ctx context.Context, r Ring) error {
		src := slices.Clone(all[r.Rank])
		dst := make([]T, len(src))
		if err := AllReduce(ctx, r, dst, src, op); err != nil {
			return err
		}
		if !same(dst, want) || !same(src, all[r.Rank]) {
			return fmt.Errorf("%s %v[%d] of %v gives %v, want %v", op.Name, dtype.TypeOf[T](), len(src), src, dst, want)
		}
		if err := AllReduce(ctx, r, src, src, op); err != nil {
			return err
		}
		if !same(src, want) {
			return fmt.Errorf("%s %v[%d] in place gives %v, want %v", op.Name, dtype.TypeOf[T](), len(src), src, want)
		}
		return nil
	})
}

// testReduceScatter is like testAllReduce, for chunks of any lengths.
func testReduceScatter[T Number](t rapid.TB, rings []Ring, all [][]T, bounds []int, op Reduction[T]) {
	t.Helper()
	total := reduced(all, op)
	mustEveryRank(t, rings, func(ctx context.Context, r Ring) error {
		lo, hi := bounds[r.Rank], bounds[r.Rank+1]
		src, want := slices.Clone(all[r.Rank]), total[lo:hi]
		dst := make([]T, hi-lo)
		if err := ReduceScatter(ctx, r, dst, src, bounds, op); err != nil {
			return err
		}
		if !same(dst, want) || !same(src, all[r.Rank]) {
			return fmt.Errorf("%s %v, chunks %v: %v, want %v", op.Name, dtype.TypeOf[T](), bounds, dst, want)
		}
		if err := ReduceScatter(ctx, r, src[lo:hi], src, bounds, op); err != nil {
			return err
		}
		if !same(src[lo:hi], want) {
			return fmt.Errorf("%s %v, chunks %v, in place: %v, want %v", op.Name, dtype.TypeOf[T](), bounds, src[lo:hi], want)
		}
		return nil
	})
}

// testAllGather checks that every rank gets the chunks of all ranks.
func testAllGather[T Number](t rapid.TB, rings []Ring, bounds []int) {
	t.Helper()
	want := input[T](0, bounds[len(rings)])
	mustEveryRank(t, rings, func(ctx context.Context, r Ring) error {
		dst := make([]T, len(want))
		lo, hi := bounds[r.Rank], bounds[r.Rank+1]
		copy(dst[lo:hi], want[lo:hi])
		if err := AllGather(ctx, r, dst, bounds); err != nil {
			return err
		}
		if !same(dst, want) {
			return fmt.Errorf("all-gather of chunks %v gives %v, want %v", bounds, dst, want)
		}
		return nil
	})
}

// testBroadcast checks that every rank gets the vector of root.
func testBroadcast[T Number](t rapid.TB, rings []Ring, n, root int) {
	t.Helper()
	want := input[T](root, n)
	mustEveryRank(t, rings, func(ctx context.Context, r Ring) error {
		dst := input[T](r.Rank, n)
		if err := Broadcast(ctx, r, dst, root); err != nil {
			return err
		}
		if !same(dst, want) {
			return fmt.Errorf("broadcast from %d gives %v, want %v", root, dst, want)
		}
		return nil
	})
}

// Every call is right for every number of ranks, length and segment size, over links with and without buffers. A segment size of
// one byte means one element.
func TestShapes(t *testing.T) {
	forRanks(t, func(t *testing.T, size int) {
		for _, n := range lengths(size) {
			for _, segment := range []int{1, 12, 100, 1 << 20} {
				for _, depth := range []int{0, 3} {
					rings := newRings(size, depth, segment)
					all, bounds := inputs[int32](size, n), Chunks(n, size)
					testAllReduce(t, rings, all, Sum[int32]())
					testReduceScatter(t, rings, all, bounds, Sum[int32]())
					testAllGather[int32](t, rings, bounds)
					testBroadcast[int32](t, rings, n, (n+segment)%size)
				}
			}
		}
	})
}

// Every type and operation is right for every number of ranks and length.
func TestTypesAndOperations(t *testing.T) {
	forRanks(t, func(t *testing.T, size int) {
		for _, n := range lengths(size) {
			rings := newRings(size, 0, 300)
			testIntegers[int8](t, rings, n)
			testIntegers[int32](t, rings, n)
			testIntegers[int64](t, rings, n)
			testIntegers[uint8](t, rings, n)
			testIntegers[uint32](t, rings, n)
			testIntegers[uint64](t, rings, n)
			testNumbers[float32](t, rings, n)
			testNumbers[float64](t, rings, n)
			testNumbers[Float16](t, rings, n)
			testNumbers[BFloat16](t, rings, n)
		}
	})
}

// testNumbers checks the calls and operations that all types have.
func testNumbers[T Number](t *testing.T, rings []Ring, n int) {
	all, bounds := inputs[T](len(rings), n), Chunks(n, len(rings))
	greatest := NewOp("greatest", true, func(dst, a, b []T) { kernel.Max(dst, a, b) })
	for _, op := range []Op[T]{Sum[T], Min[T], Max[T], Average[T], And[T], Or[T], Xor[T], greatest} {
		testAllReduce(t, rings, all, op())
		testReduceScatter(t, rings, all, bounds, op())
	}
	for _, v := range all { // powers of two, so that products are exact
		for i := range v {
			v[i] = kernel.FromFloat64[T](float64(1 + int(kernel.ToFloat64(v[i]))%2))
		}
	}
	testAllReduce(t, rings, all, Prod[T]())
	testAllGather[T](t, rings, bounds)
	testBroadcast[T](t, rings, n, 0)
}

// testIntegers also checks the bitwise operations.
func testIntegers[T Integer](t *testing.T, rings []Ring, n int) {
	testNumbers[T](t, rings, n)
	for _, op := range []Op[T]{BitAnd[T], BitOr[T], BitXor[T]} {
		testAllReduce(t, rings, inputs[T](len(rings), n), op())
	}
}

// The sum equals its closed form. This test does not depend on the function reduced.
func TestClosedForm(t *testing.T) {
	forRanks(t, func(t *testing.T, size int) {
		mustEveryRank(t, newRings(size, 1, 512), func(ctx context.Context, r Ring) error {
			v := input[int64](r.Rank, 2000)
			if err := AllReduce(ctx, r, v, v, Sum[int64]()); err != nil {
				return err
			}
			for i, x := range v {
				if want := int64(1009*size*(size-1)/2 + size*(i+1)); x != want {
					return fmt.Errorf("element %d is %d, want %d", i, x, want)
				}
			}
			return nil
		})
	})
}

// The reduction gets the partial sum as its first operand, and the rank's own elements as its second. Chunk c starts at rank c
// and travels to the right. The digits of the result show the order.
func TestFoldOrder(t *testing.T) {
	digits := Reduction[int64]{Name: "digits", Commutative: true, Fold: func(dst, a, b []int64) {
		for i := range dst {
			dst[i] = 10*a[i] + b[i]
		}
	}}
	mustEveryRank(t, newRings(4, 0, 8), func(ctx context.Context, r Ring) error {
		own := int64(r.Rank + 1)
		v := []int64{own, own, own, own}
		if err := AllReduce(ctx, r, v, v, digits); err != nil {
			return err
		}
		if want := []int64{1234, 2341, 3412, 4123}; !slices.Equal(v, want) {
			return fmt.Errorf("folded to %v, want %v", v, want)
		}
		return nil
	})
}

// No rank sends more than 2(n-1)/n of the vector, as doc.go states. If a chunk fits into a segment, a rank sends 2(n-1)
// messages. Longer chunks are cut into messages of whole elements.
func TestCosts(t *testing.T) {
	const size, n = 5, 1000
	for _, c := range []struct{ segment, messages, longest int }{
		{1 << 20, 2 * (size - 1), 4 * n / size},
		{800, 2 * (size - 1), 800},
		{799, 2 * (size - 1) * 2, 796},
		{3, 2 * (size - 1) * n / size, 4},
	} {
		rings := newRings(size, 0, c.segment)
		counters := make([]*counter, size)
		for i := range rings {
			counters[i] = &counter{Link: rings[i].Link}
			rings[i].Link = counters[i]
		}
		testAllReduce(t, rings, inputs[float32](size, n), Sum[float32]())
		want := counter{messages: 2 * c.messages, bytes: 2 * 2 * (size - 1) * 4 * n / size, longest: c.longest}
		for i, got := range counters { // testAllReduce makes two calls
			if got.messages != want.messages || got.bytes != want.bytes || got.longest != want.longest {
				t.Errorf("segments of %d bytes: rank %d sent %+v, want %+v", c.segment, i, got, want)
			}
		}
	}
}

// A call allocates at most a segment, and ReduceScatter also two partial sums.
func TestBuffers(t *testing.T) {
	bounds := []int{0, 100, 300, 400}
	for _, c := range []struct {
		p             *pipeline[int8]
		scratch, work int
	}{
		{&pipeline[int8]{schedule: allReduce(turn{place: 0}, bounds, 7)}, 7, 0},
		{&pipeline[int8]{schedule: allReduce(turn{place: 0}, bounds, 7000)}, 200, 0},
		{&pipeline[int8]{schedule: reduceScatter(turn{place: 0}, bounds, 7), scattered: true}, 7, 400},
		{&pipeline[int8]{schedule: reduceScatter(turn{place: 0}, bounds[:3], 7), scattered: true}, 7, 0},
		{&pipeline[int8]{schedule: allGather(turn{place: 0}, bounds, 7)}, 0, 0},
	} {
		c.p.allocate()
		if len(c.p.scratch) != c.scratch || len(c.p.work) != c.work {
			t.Errorf("%+v: scratch of %d, want %d; work of %d, want %d",
				c.p.schedule, len(c.p.scratch), c.scratch, len(c.p.work), c.work)
		}
	}
}

// Chunks returns bounds of chunks whose lengths differ by at most one.
func TestChunks(t *testing.T) {
	for _, c := range []struct {
		n, size int
		want    []int
	}{
		{0, 1, []int{0, 0}},
		{0, 3, []int{0, 0, 0, 0}},
		{2, 3, []int{0, 1, 2, 2}},
		{3, 3, []int{0, 1, 2, 3}},
		{8, 3, []int{0, 3, 6, 8}},
	} {
		if got := Chunks(c.n, c.size); !slices.Equal(got, c.want) {
			t.Errorf("Chunks(%d, %d) is %v, want %v", c.n, c.size, got, c.want)
		}
	}
}

// Invalid arguments are refused before anything is sent.
func TestArguments(t *testing.T) {
	good := Ring{Link: memory{}, Rank: 1, Size: 3, Segment: 8}
	with := func(change func(*Ring)) Ring {
		r := good
		change(&r)
		return r
	}
	ctx, v, sum := t.Context(), make([]int32, 3), Sum[int32]()
	divide := NewOp("divide", false, func(dst, a, b []int32) {})()
	for name, c := range map[string]struct{ err, want error }{
		"size 0":           {AllReduce(ctx, with(func(r *Ring) { r.Size = 0 }), v, v, sum), ErrArgument},
		"rank 3 of 3":      {AllReduce(ctx, with(func(r *Ring) { r.Rank = 3 }), v, v, sum), ErrArgument},
		"rank -1":          {AllGather(ctx, with(func(r *Ring) { r.Rank = -1 }), v, []int{0, 1, 2, 3}), ErrArgument},
		"segment 0":        {Broadcast(ctx, with(func(r *Ring) { r.Segment = 0 }), v, 0), ErrArgument},
		"order of 2":       {AllReduce(ctx, with(func(r *Ring) { r.Order = []int{0, 1} }), v, v, sum), ErrArgument},
		"rank twice":       {AllReduce(ctx, with(func(r *Ring) { r.Order = []int{0, 1, 1} }), v, v, sum), ErrArgument},
		"order up to 3":    {Broadcast(ctx, with(func(r *Ring) { r.Order = []int{1, 2, 3} }), v, 0), ErrArgument},
		"no link":          {Broadcast(ctx, with(func(r *Ring) { r.Link = nil }), v, 0), ErrArgument},
		"lengths":          {AllReduce(ctx, good, v[:2], v, sum), ErrArgument},
		"order":            {AllReduce(ctx, good, v, v, divide), ErrNotCommutative},
		"order of one":     {AllReduce(ctx, Ring{Size: 1, Segment: 1}, v, v, divide), ErrNotCommutative},
		"scattered order":  {ReduceScatter(ctx, good, v[:1], v, []int{0, 1, 2, 3}, divide), ErrNotCommutative},
		"own chunk":        {ReduceScatter(ctx, good, v, v, []int{0, 1, 2, 3}, sum), ErrArgument},
		"bounds of 2":      {ReduceScatter(ctx, good, v[:1], v, []int{0, 1, 3}, sum), ErrArgument},
		"bounds from 1":    {AllGather(ctx, good, v, []int{1, 1, 2, 3}), ErrArgument},
		"bounds to 4":      {AllGather(ctx, good, v, []int{0, 1, 2, 4}), ErrArgument},
		"bounds backwards": {AllGather(ctx, good, v, []int{0, 2, 1, 3}), ErrArgument},
		"root -1":          {Broadcast(ctx, good, v, -1), ErrArgument},
		"root 3":           {Broadcast(ctx, good, v, 3), ErrArgument},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", name, c.err, c.want)
		}
	}
}

// A Memory that returns memory which is in use is an ErrArgument, whatever it overlaps. Memory that is only adjacent is right,
// and so is memory with any content.
func TestMemoryOverlaps(t *testing.T) {
	const n, size, segment = 12, 3, 8 // a chunk is 4 words, a segment is 1 word: Memory is asked for 1 word and for 8
	for name, c := range map[string]struct {
		scratch, work, dst int // offsets in one array of words
		want               error
	}{
		"apart":                {0, 1, 9, nil},
		"scratch twice":        {0, 0, 9, ErrArgument},
		"end of the other":     {8, 1, 9, ErrArgument},
		"scratch in dst":       {12, 1, 9, ErrArgument},
		"work into dst":        {0, 2, 9, ErrArgument},
		"work into src":        {0, 17, 9, ErrArgument},
		"scratch in src":       {14, 1, 9, ErrArgument},
		"work before scratch":  {8, 0, 9, nil},
		"scratch after source": {25, 1, 9, nil},
	} {
		rings := newRings(size, 0, segment)
		errs := everyRank(rings, func(ctx context.Context, r Ring) error {
			memory := make([]uint64, 40)
			for i := range memory {
				memory[i] = 0x7ff8_dead_beef_0000 // poison: no sum of the inputs
			}
			at := []int{c.scratch, c.work}
			r.Memory = func(words int) []uint64 {
				first := at[0]
				at = at[1:]
				return memory[first:][:words]
			}
			all := kernel.View[int64](memory, len(memory))
			dst, src := all[c.dst:][:n/size], all[c.dst+n/size:][:n]
			copy(src, input[int64](r.Rank, n))
			err := ReduceScatter(ctx, r, dst, src, Chunks(n, size), Sum[int64]())
			if want := reduced(inputs[int64](size, n), Sum[int64]())[r.Rank*n/size:][:n/size]; err == nil && !same(dst, want) {
				return fmt.Errorf("sums %v, want %v", dst, want)
			}
			return err
		})
		for rank, err := range errs {
			if !errors.Is(err, c.want) {
				t.Errorf("%s: rank %d returns %v, want %v", name, rank, err, c.want)
			}
		}
	}
}

// With Memory, calls use the memory of the caller, and not more than documented.
func TestMemory(t *testing.T) {
	const n, segment = 1000, 256
	for name, limit := range map[string]int{"allreduce": segment, "reduce-scatter": segment + 8*2*((n+2)/3)} {
		rings := newRings(3, 0, segment)
		var taken [3]int // bytes that each rank has used
		mustEveryRank(t, rings, func(ctx context.Context, r Ring) error {
			r.Memory = func(words int) []uint64 {
				taken[r.Rank] += 8 * words
				return make([]uint64, words)
			}
			src, dst := input[int64](r.Rank, n), make([]int64, n)
			if name == "allreduce" {
				return AllReduce(ctx, r, dst, src, Sum[int64]())
			}
			b := Chunks(n, r.Size)
			return ReduceScatter(ctx, r, dst[b[r.Rank]:b[r.Rank+1]], src, b, Sum[int64]())
		})
		for rank, bytes := range taken {
			if bytes == 0 || bytes > limit {
				t.Errorf("%s: rank %d took %d bytes of memory, want at most %d", name, rank, bytes, limit)
			}
		}
	}
}
