package compress_test

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/trainer/compress"
	"pgregory.net/rapid"
)

// must returns a coding by name.
func must(t testing.TB, name string) collective.Coding {
	t.Helper()
	c, err := compress.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// names lists a coding of each kind.
func names() []string { return []string{"fp16", "bf16", "int8", "topk:0.01"} }

// decoded codes a copy of v and returns what comes out, and what was left.
func decoded(t testing.TB, c collective.Coding, v []float32) (out, rest []float32) {
	t.Helper()
	rest, out = slices.Clone(v), make([]float32, len(v))
	code := bytes.Repeat([]byte{0xa5}, c.Size(len(v)))
	c.Encode(code, rest)
	if err := c.Add(out, code); err != nil {
		t.Fatalf("%s: %v", c.Name(), err)
	}
	again := make([]float32, len(v))
	if err := c.Add(again, code); err != nil || !slices.EqualFunc(out, again, sameBits) {
		t.Fatalf("%s: decoded again, error %v, to something else", c.Name(), err)
	}
	return out, rest
}

func sameBits(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

// gradient draws vectors of several blocks and runs whose values differ by many orders of
// magnitude, with runs of equal ones.
func gradient(rt *rapid.T) []float32 {
	n := rapid.SampledFrom([]int{0, 1, 2, 254, 255, 256, 511, 1023, 1024, 1025, 2500}).Draw(rt, "n")
	state := rapid.Uint64().Draw(rt, "seed") | 1
	wide := rapid.IntRange(1, 250).Draw(rt, "wide")
	v := make([]float32, n)
	for i := range v {
		state = state*6364136223846793005 + 1442695040888963407
		if state>>61 > 0 || i == 0 {
			v[i] = float32(math.Ldexp(float64(int32(state>>32))/(1<<31), int(state>>20)%wide-wide*3/4))
		} else {
			v[i] = v[i-1]
		}
	}
	return v
}

// What is decoded and what is left are what there was: exactly, as far as a float32 can be
// the difference of two.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		v := gradient(rt)
		for _, name := range names() {
			out, rest := decoded(t, must(t, name), v)
			for i, x := range v {
				if diff := math.Abs(float64(out[i]) + float64(rest[i]) - float64(x)); diff > math.Abs(float64(x))*0x1p-24 {
					rt.Fatalf("%s: element %d is %v: decoded %v, left %v", name, i, x, out[i], rest[i])
				}
			}
		}
	})
}

// What each kind may lose of a value, as its documentation has it.
func TestPrecision(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		v := gradient(rt)
		for _, name := range []string{"fp16", "bf16", "int8"} {
			_, rest := decoded(t, must(t, name), v)
			for i, x := range v {
				begin := i / 1024 * 1024
				top := float64(0)
				for _, y := range v[begin:min(begin+1024, len(v))] {
					top = max(top, math.Abs(float64(y)))
				}
				bound := map[string]float64{
					"fp16": max(math.Abs(float64(x))*0x1p-11, top*0x1p-38, 0x1p-149),
					"bf16": max(math.Abs(float64(x))*0x1p-8, 0x1p-133),
					"int8": max(top/254*1.0001, 0x1p-100),
				}[name]
				if math.Abs(float64(rest[i])) > bound {
					rt.Fatalf("%s: element %d is %v beside %v: lost %v, at most %v", name, i, x, top, rest[i], bound)
				}
			}
		}
	})
}

// The twin of topk sorts.
func TestTopKIsSorting(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		v := gradient(rt)
		fraction := rapid.Float64Range(1e-6, 0.5).Draw(rt, "fraction")
		c, err := compress.NewTopK(fraction)
		if err != nil {
			rt.Fatal(err)
		}
		places := make([]int, len(v))
		for i := range places {
			places[i] = i
		}
		// Of equal ones the first.
		slices.SortStableFunc(places, func(a, b int) int { return -cmp.Compare(math.Abs(float64(v[a])), math.Abs(float64(v[b]))) })
		k := min(len(v), max(256, int(math.Ceil(fraction*float64(len(v))))))
		want := make([]float32, len(v))
		for _, i := range places[:k] {
			want[i] = dtype.ToBFloat16(v[i]).Float32()
		}
		if out, _ := decoded(t, c, v); !slices.Equal(out, want) {
			rt.Fatalf("of %v\nkept %v\nwant %v", v, out, want)
		}
	})
}

// A single infinity or NaN shows in what is decoded.
func TestNotFiniteStays(t *testing.T) {
	for _, name := range names() {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			v := make([]float32, 3000)
			for i := range v {
				v[i] = float32(i)
			}
			v[1500] = bad
			out, _ := decoded(t, must(t, name), v)
			if !slices.ContainsFunc(out, func(x float32) bool { return x-x != 0 }) {
				t.Errorf("%s makes a vector with %v finite", name, bad)
			}
		}
	}
}

// The largest and the smallest numbers there are.
func TestExtremes(t *testing.T) {
	for _, name := range names() {
		for _, x := range []float32{math.MaxFloat32 / 2, 65520, 65504, 1, 0x1p-99, 0x1p-126, math.SmallestNonzeroFloat32, 0} {
			out, rest := decoded(t, must(t, name), []float32{x, -x, x / 3})
			for i, want := range []float32{x, -x, x / 3} {
				if got := out[i] + rest[i]; got != want {
					t.Errorf("%s: %v: decoded %v and left %v", name, want, out[i], rest[i])
				}
				if x >= 0x1p-99 && math.Abs(float64(rest[i])) > float64(x)/100 {
					t.Errorf("%s: %v: left %v", name, want, rest[i])
				}
			}
		}
	}
}

// How much shorter gradients get, for a bucket of the default size.
func TestSizes(t *testing.T) {
	const n = 65536
	for name, want := range map[string]float64{"fp16": 1.999, "bf16": 2, "int8": 3.984, "topk": 117.7, "topk:0.1": 13.1} {
		if ratio := 4 * n / float64(must(t, name).Size(n)); ratio < want {
			t.Errorf("%s: %.4f times shorter, want %v", name, ratio, want)
		}
	}
	for _, name := range names() {
		c := must(t, name)
		for n := range 3000 {
			if c.Size(n) > c.Size(n+1) || c.Size(0) != 0 {
				t.Fatalf("%s: %d elements have %d bytes, %d have %d", name, n, c.Size(n), n+1, c.Size(n+1))
			}
		}
	}
}

// A training begins with an eighth of the elements, or with as many as it goes on with.
func TestAt(t *testing.T) {
	for _, name := range []string{"fp16", "bf16", "int8", "topk:0.125", "topk:0.3"} {
		for step := range int64(300) {
			if c := must(t, name); compress.At(c, step+1) != c {
				t.Errorf("%s is another coding in step %d", name, step+1)
			}
		}
	}
	for step, want := range map[int64]string{1: "topk:0.125", 32: "topk:0.125", 33: "topk:0.0625", 97: "topk:0.015625", 128: "topk:0.015625",
		129: "topk:0.01", 1e12: "topk:0.01"} {
		if got := compress.At(must(t, "topk:0.01"), step).Name(); got != want {
			t.Errorf("step %d: %s, want %s", step, got, want)
		}
	}
	if compress.At(nil, 1) != nil {
		t.Error("no coding becomes one")
	}
	// All that comes earlier by this costs what a few steps would without compression.
	for _, fraction := range []float64{1e-6, 0.001, 0.01, 0.1} {
		c, err := compress.NewTopK(fraction)
		if err != nil {
			t.Fatal(err)
		}
		const n = 1 << 20
		more := 0
		for step := range int64(1000) {
			more += compress.At(c, step+1).Size(n) - c.Size(n)
		}
		if more < 0 || more > 8*4*n {
			t.Errorf("%s: %d bytes more in the first steps", c.Name(), more)
		}
	}
}

// FuzzAdd decodes any bytes: a vector or an error, and the same again.
func FuzzAdd(f *testing.F) {
	for _, n := range []int{0, 1, 300, 1100} {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(i%17) - 8
		}
		for i, name := range names() {
			code := make([]byte, must(f, name).Size(n))
			must(f, name).Encode(code, slices.Clone(v))
			f.Add(code, uint16(n), uint8(i))
		}
	}
	f.Add(bytes.Repeat([]byte{255}, 100), uint16(30), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, n uint16, kind uint8) {
		c := must(t, names()[int(kind)%4])
		code := make([]byte, c.Size(int(n)%5000))
		copy(code, b)
		first, second := make([]float32, int(n)%5000), make([]float32, int(n)%5000)
		err, again := c.Add(first, code), c.Add(second, code)
		if (err == nil) != (again == nil) || !slices.EqualFunc(first, second, sameBits) {
			t.Errorf("%s: %v, and then %v", c.Name(), err, again)
		}
	})
}
