package kernel

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/dtype"
)

// sumCase draws the number, the length and the offsets of vectors, and compares their sum at every
// level with the result of slowSum.
func sumCase[T dtype.Number](t *rapid.T) {
	p := newPool[T](rapid.Uint64().Draw(t, "seed"))
	n := rapid.IntRange(0, 1500).Draw(t, "n")
	place := rapid.IntRange(0, cacheLine/Size[T]()-1)
	from := make([][]T, rapid.IntRange(1, 9).Draw(t, "count"))
	for i := range from {
		from[i], _ = aligned[T](n, place.Draw(t, "place"))
		p.fill(from[i])
	}
	want := slowSum(from, n)
	to := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) target {
		return target{place.Draw(t, "dst at"), rapid.IntRange(-1, len(from)-1).Draw(t, "dst is")}
	}), 1, 5).Draw(t, "dst")
	nonTemporal := rapid.IntRange(0, len(to)).Draw(t, "nonTemporal")
	if rapid.Bool().Draw(t, "alike") {
		for k := range to {
			to[k].place = to[0].place
		}
	}
	for _, l := range levels() {
		in := append([][]T(nil), from...)
		taken := make(map[int]bool)
		dst, memory, before := make([][]T, len(to)), make([][]T, len(to)), make([][]T, len(to))
		for k, d := range to {
			dst[k], memory[k] = aligned[T](n, d.place)
			p.fill(memory[k])
			if d.alias >= 0 && !taken[d.alias] {
				taken[d.alias] = true
				copy(dst[k], from[d.alias])
				in[d.alias] = dst[k]
			}
			before[k] = append([]T(nil), memory[k]...)
		}
		addAll(l, dst, in, nonTemporal)
		for k := range dst {
			for i := range dst[k] {
				if !equal(dst[k][i], want[i]) {
					t.Fatalf("%v %v: element %d of %d of copy %d is %v, want %v", l, dtype.TypeOf[T](), i, n, k, ToFloat64(dst[k][i]), ToFloat64(want[i]))
				}
			}
			checkAround(t, memory[k], before[k], dst[k])
		}
	}
}

// target is a destination. place is its offset from a cache line, in elements. alias is the index of the added vector that is the
// same as the destination; -1 for none.
type target struct{ place, alias int }

// slowSum is the slow twin of AddAll; it adds 16-bit floats in float32.
func slowSum[T dtype.Number](from [][]T, n int) []T {
	sum := make([]T, n)
	for i := range sum {
		if !isHalf[T]() {
			sum[i] = from[0][i]
			for _, v := range from[1:] {
				sum[i] += v[i]
			}
			continue
		}
		x := float32(ToFloat64(from[0][i]))
		for _, v := range from[1:] {
			x += float32(ToFloat64(v[i]))
		}
		sum[i] = FromFloat64[T](float64(x))
	}
	return sum
}

// sumCases returns sumCase for all types, in wire order.
func sumCases() []func(t *rapid.T) {
	return []func(t *rapid.T){
		sumCase[int8], sumCase[int32], sumCase[int64], sumCase[uint8], sumCase[uint32],
		sumCase[uint64], sumCase[float32], sumCase[float64], sumCase[dtype.Float16], sumCase[dtype.BFloat16],
	}
}

// AddAll has the results of its twin at every level, and writes only to its destinations.
func TestAddAll(t *testing.T) {
	for i, f := range sumCases() {
		t.Run(dtype.Types()[i].String(), func(t *testing.T) { rapid.Check(t, f) })
	}
}

// FuzzAddAll lets the fuzzer choose the type, the vectors and their offsets.
func FuzzAddAll(f *testing.F) {
	f.Add(make([]byte, 4096)) // enough bytes to draw everything
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		rapid.SampledFrom(sumCases()).Draw(t, "type")(t)
	}))
}

// A sum of 16-bit floats is rounded once, unlike a chain of Add.
func TestAddAllRoundsOnce(t *testing.T) {
	one, tiny := dtype.ToBFloat16(1), dtype.ToBFloat16(0x1p-9) // tiny is half a unit in the last place below 1, a quarter above
	v := make([][]dtype.BFloat16, 5)
	for i := range v {
		v[i] = make([]dtype.BFloat16, 100)
		for j := range v[i] {
			v[i][j] = tiny
			if i == 0 {
				v[i][j] = one
			}
		}
	}
	dst := make([]dtype.BFloat16, 100)
	for nonTemporal := range 2 {
		AddAll([][]dtype.BFloat16{dst}, v, nonTemporal)
		for _, x := range dst {
			if got := x.Float32(); got != 1+0x1p-7 {
				t.Fatalf("1 + 4 * 2^-9 is %v, want one unit in the last place above 1", got)
			}
		}
	}
}

// AddAll panics without vectors and with vectors of different lengths.
func TestAddAllMisuse(t *testing.T) {
	v := make([]float32, 3)
	for i, f := range []func(){
		func() { AddAll([][]float32{v}, nil, 0) },
		func() { AddAll([][]float32{v}, [][]float32{v, v[:2]}, 0) },
		func() { AddAll([][]float32{v[:2]}, [][]float32{v}, 1) },
		func() { AddAll(nil, [][]float32{v}, 0) },
		func() { AddAll([][]float32{v, v[:2]}, [][]float32{v}, 0) },
	} {
		if panicOf(f) == "" {
			t.Errorf("case %d: no panic", i)
		}
	}
}

// AddAll does not allocate.
func TestAddAllNoAllocation(t *testing.T) {
	sumsWithoutAllocation[float32](t)
	sumsWithoutAllocation[dtype.BFloat16](t)
	sumsWithoutAllocation[int64](t)
}

// sumsWithoutAllocation checks one type at every level.
func sumsWithoutAllocation[T dtype.Number](t *testing.T) {
	t.Helper()
	from := [][]T{make([]T, 1000), make([]T, 1000), make([]T, 1000)}
	for _, l := range levels() {
		if n := testing.AllocsPerRun(10, func() { addAll(l, from[:1], from, 0) }); n != 0 {
			t.Errorf("%v %v: %v allocations", l, dtype.TypeOf[T](), n)
		}
	}
}
