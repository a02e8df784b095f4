package kernel

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/dtype"
)

// kernels_test.go compares the kernels with slow twins. The tests in this file compare the assembly with the loops in Go, for all
// offsets and lengths of vectors.

// aliases says which operand, if any, is the same vector as the destination.
type aliases int

const (
	distinct aliases = iota
	dstIsA
	dstIsB
	allOne
	aliasings // number of the constants above
)

// layout has the length and the offsets of the vectors in one reduction.
type layout struct {
	n         int // elements
	dst, a, b int // offset from a cache line, in elements
	alias     aliases
}

// cacheLine is the alignment to which offsets refer, in bytes.
const cacheLine = 64

// aligned returns n elements. The first one is at the given offset, in elements, from a cache line.
// memory includes the elements around them.
func aligned[T dtype.Number](n, offset int) (v, memory []T) {
	line := cacheLine / Size[T]()
	memory = make([]T, 3*line+offset+n)
	start := offset
	for addressOf(memory[start-offset:])%cacheLine != 0 {
		start++
	}
	return memory[start+line : start+line+n : start+line+n], memory
}

// pool has random elements to fill vectors with. A quarter of the elements are edges; the other
// elements are random bit patterns.
type pool[T dtype.Number] struct {
	r      *rand.Rand
	values []T
}

// newPool returns a pool that is determined by the seed and the type.
func newPool[T dtype.Number](seed uint64) pool[T] {
	p := pool[T]{rand.New(rand.NewPCG(seed, uint64(dtype.TypeOf[T]()))), make([]T, 6000)}
	e := edges[T]()
	for i := range p.values {
		if x := p.r.Uint64(); x%4 == 0 {
			p.values[i] = e[p.r.IntN(len(e))]
		} else {
			p.values[i] = View[T]([]uint64{x >> 2}, 1)[0]
		}
	}
	return p
}

// fill copies elements from a random position in the pool to v, which must be shorter than the pool.
func (p pool[T]) fill(v []T) { copy(v, p.values[p.r.IntN(len(p.values)-len(v)):]) }

// checkFold compares the kernel at level l with the loop in Go, and checks the memory around the
// destination.
func checkFold[T dtype.Number](t rapid.TB, p pool[T], l level, op operation, y layout) {
	t.Helper()
	a, _ := aligned[T](y.n, y.a)
	b, _ := aligned[T](y.n, y.b)
	dst, memory := aligned[T](y.n, y.dst)
	p.fill(memory)
	p.fill(a)
	p.fill(b)
	switch y.alias {
	case dstIsA:
		copy(dst, a)
		a = dst
	case dstIsB:
		copy(dst, b)
		b = dst
	case allOne:
		a, b = dst, dst
	}
	a1, b1 := append([]T(nil), a...), append([]T(nil), b...)
	before := append([]T(nil), memory...)
	want := make([]T, y.n)
	goFold(op, want, a, b)
	if !foldVectors(l, op, dst, a, b) {
		goFold(op, dst, a, b)
	}
	for i := range dst {
		if !equal(dst[i], want[i]) {
			t.Fatalf("%v %v, operation %d, %+v: element %d: %v and %v give %v, want %v", l, dtype.TypeOf[T](), op, y, i,
				ToFloat64(a1[i]), ToFloat64(b1[i]), ToFloat64(dst[i]), ToFloat64(want[i]))
		}
	}
	checkAround(t, memory, before, dst)
}

// checkAround checks that memory has changed only within dst.
func checkAround[T dtype.Number](t rapid.TB, memory, before, dst []T) {
	t.Helper()
	lo := 0
	if len(dst) > 0 {
		lo = int(addressOf(dst)-addressOf(memory)) / Size[T]()
	}
	hi := lo + len(dst)
	if !bytes.Equal(Bytes(memory[:lo]), Bytes(before[:lo])) || !bytes.Equal(Bytes(memory[hi:]), Bytes(before[hi:])) {
		t.Fatalf("%v: memory outside of the destination was written", dtype.TypeOf[T]())
	}
}

// goFold reduces with the loop in Go, for any operation, bitwise or not.
func goFold[T dtype.Number](op operation, dst, a, b []T) {
	if op < opBitAnd {
		foldLoop(op, dst, a, b)
		return
	}
	bitLoop(op, Bytes(dst), Bytes(a), Bytes(b))
}

// operationsOf lists the operations for which there may be assembly.
func operationsOf[T dtype.Number]() []operation {
	ops := []operation{opAdd, opMul, opMin, opMax}
	if dtype.TypeOf[T]() < dtype.F32 {
		ops = append(ops, opBitAnd, opBitOr, opBitXor)
	}
	return ops
}

// perType is a test of one element type; forTypes runs it for all types.
type perType struct {
	i8  func(t *testing.T)
	i32 func(t *testing.T)
	i64 func(t *testing.T)
	u8  func(t *testing.T)
	u32 func(t *testing.T)
	u64 func(t *testing.T)
	f32 func(t *testing.T)
	f64 func(t *testing.T)
	f16 func(t *testing.T)
	b16 func(t *testing.T)
}

// run runs the test of each type as a subtest.
func (p perType) run(t *testing.T) {
	for i, f := range []func(t *testing.T){p.i8, p.i32, p.i64, p.u8, p.u32, p.u64, p.f32, p.f64, p.f16, p.b16} {
		t.Run(dtype.Types()[i].String(), f)
	}
}

// Assembly is right for every length up to 300, at every level and with every aliasing. The offsets depend on the length.
func TestFoldLengths(t *testing.T) {
	perType{
		foldLengths[int8], foldLengths[int32], foldLengths[int64], foldLengths[uint8], foldLengths[uint32],
		foldLengths[uint64], foldLengths[float32], foldLengths[float64], foldLengths[dtype.Float16], foldLengths[dtype.BFloat16],
	}.run(t)
}

// foldLengths is TestFoldLengths for one type.
func foldLengths[T dtype.Number](t *testing.T) {
	p := newPool[T](1)
	line := cacheLine / Size[T]()
	for _, l := range levels()[1:] { // levels()[0] uses the loops in Go
		for _, op := range operationsOf[T]() {
			for n := range 301 {
				y := layout{n, p.r.IntN(line), p.r.IntN(line), p.r.IntN(line), aliases(n+int(op)) % aliasings}
				checkFold(t, p, l, op, y)
			}
		}
	}
}

// Assembly is right for every pair of alignments of the destination and an operand.
func TestFoldAlignments(t *testing.T) {
	perType{
		foldAlignments[int8], foldAlignments[int32], foldAlignments[int64], foldAlignments[uint8], foldAlignments[uint32],
		foldAlignments[uint64], foldAlignments[float32], foldAlignments[float64], foldAlignments[dtype.Float16], foldAlignments[dtype.BFloat16],
	}.run(t)
}

// foldAlignments is TestFoldAlignments for one type.
func foldAlignments[T dtype.Number](t *testing.T) {
	p := newPool[T](2)
	line := cacheLine / Size[T]()
	for _, l := range levels()[1:] {
		for dst := range line {
			for a := range line {
				y := layout{2*line + p.r.IntN(line), dst, a, p.r.IntN(line), aliases(p.r.IntN(int(aliasings)))}
				checkFold(t, p, l, opAdd, y)
			}
		}
	}
}

// foldCase draws a layout and checks a reduction with it.
func foldCase[T dtype.Number](t *rapid.T) {
	line := rapid.IntRange(0, cacheLine/Size[T]()-1)
	y := layout{
		n:     rapid.IntRange(0, 2000).Draw(t, "n"),
		dst:   line.Draw(t, "dst"),
		a:     line.Draw(t, "a"),
		b:     line.Draw(t, "b"),
		alias: aliases(rapid.IntRange(0, int(aliasings)-1).Draw(t, "alias")),
	}
	l := rapid.SampledFrom(levels()).Draw(t, "level")
	op := rapid.SampledFrom(operationsOf[T]()).Draw(t, "operation")
	checkFold(t, newPool[T](rapid.Uint64().Draw(t, "seed")), l, op, y)
}

// foldCases returns foldCase for all types, in wire order.
func foldCases() []func(t *rapid.T) {
	return []func(t *rapid.T){
		foldCase[int8], foldCase[int32], foldCase[int64], foldCase[uint8], foldCase[uint32],
		foldCase[uint64], foldCase[float32], foldCase[float64], foldCase[dtype.Float16], foldCase[dtype.BFloat16],
	}
}

// Assembly is right for random layouts, operations and levels.
func TestFoldAnywhere(t *testing.T) {
	for i, f := range foldCases() {
		t.Run(dtype.Types()[i].String(), func(t *testing.T) { rapid.Check(t, f) })
	}
}

// FuzzFold lets the fuzzer choose the type, operation, level, layout and elements.
func FuzzFold(f *testing.F) {
	f.Add(make([]byte, 4096)) // enough bytes to draw everything
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		rapid.SampledFrom(foldCases()).Draw(t, "type")(t)
	}))
}

// divideCase compares the quotients at every level with the loop in Go.
func divideCase[T dtype.Number](t *rapid.T) {
	p := newPool[T](rapid.Uint64().Draw(t, "seed"))
	v, memory := aligned[T](rapid.IntRange(0, 500).Draw(t, "n"), rapid.IntRange(0, cacheLine/Size[T]()-1).Draw(t, "place"))
	by := rapid.IntRange(1, 1<<40).Draw(t, "by")
	for _, l := range levels() {
		p.fill(memory)
		before, want := append([]T(nil), memory...), append([]T(nil), v...)
		divideLoop(want, by)
		if !divideVectors(l, v, by) {
			divideLoop(v, by)
		}
		for i := range v {
			if !equal(v[i], want[i]) {
				t.Fatalf("%v %v: element %d divided by %d is %v, want %v", l, dtype.TypeOf[T](), i, by, ToFloat64(v[i]), ToFloat64(want[i]))
			}
		}
		checkAround(t, memory, before, v)
	}
}

// Quotients by assembly are right for random lengths, offsets and divisors.
func TestDivideAnywhere(t *testing.T) {
	t.Run("float32", func(t *testing.T) { rapid.Check(t, divideCase[float32]) })
	t.Run("float64", func(t *testing.T) { rapid.Check(t, divideCase[float64]) })
	t.Run("float16", func(t *testing.T) { rapid.Check(t, divideCase[dtype.Float16]) })
	t.Run("bfloat16", func(t *testing.T) { rapid.Check(t, divideCase[dtype.BFloat16]) })
	t.Run("int32", func(t *testing.T) { rapid.Check(t, divideCase[int32]) })
}
