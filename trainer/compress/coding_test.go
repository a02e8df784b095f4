package compress_test

import (
	"bytes"
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/trainer/compress"
	"pgregory.net/rapid"
)

// must returns the coding with a name.
func must(t testing.TB, name string) collective.Coding {
	t.Helper()
	c, err := compress.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// names lists a coding of each kind.
func names() []string { return []string{"fp16", "bf16", "int8", "topk:0.01", "topk:0.01:2bit"} }

// decoded encodes a copy of v. It returns the decoded vector, and the coding error that Encode left
// in the copy.
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

// gradient generates vectors of several blocks and runs, whose values differ by many orders of
// magnitude, with runs of equal values.
func gradient(rt *rapid.T) []float32 {
	n := rapid.SampledFrom([]int{0, 1, 2, 254, 255, 256, 511, 1023, 1024, 1025, 2500, 9000}).Draw(rt, "n")
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

// The decoded vector plus the coding error is the input. The sum is exact if the difference of
// input and decoded value is exact in float32. With values of 2 bits a decoded magnitude may exceed
// the magnitude of the input.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		v := gradient(rt)
		for _, name := range names() {
			out, rest := decoded(t, must(t, name), v)
			for i, x := range v {
				size := math.Abs(float64(x))
				if strings.HasSuffix(name, ":2bit") {
					size = max(size, math.Abs(float64(out[i])))
				}
				if diff := math.Abs(float64(out[i]) + float64(rest[i]) - float64(x)); diff > size*0x1p-24 {
					rt.Fatalf("%s: element %d is %v: decoded %v, left %v", name, i, x, out[i], rest[i])
				}
			}
		}
	})
}

// The error of each coding is within the bound in its documentation.
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

// TopK selects the same elements as a reference implementation that sorts the elements.
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
		// Of equal magnitudes the first is kept.
		slices.SortStableFunc(places, func(a, b int) int { return -cmp.Compare(math.Abs(float64(v[a])), math.Abs(float64(v[b]))) })
		k := min(len(v), max(256, int(math.Ceil(fraction*float64(len(v))))))
		want, coarse := make([]float32, len(v)), make([]float32, len(v))
		for _, i := range places[:k] {
			want[i] = dtype.ToBFloat16(v[i]).Float32()
		}
		if out, _ := decoded(t, c, v); !slices.Equal(out, want) {
			rt.Fatalf("of %v\nkept %v\nwant %v", v, out, want)
		}
		kept := places[:k]
		slices.Sort(kept)
		for len(kept) > 0 {
			n := slices.IndexFunc(kept, func(i int) bool { return i/4080 > kept[0]/4080 })
			if n < 0 {
				n = len(kept)
			}
			twoMagnitudes(coarse, v, kept[:n])
			kept = kept[n:]
		}
		if out, _ := decoded(t, c.In2Bits(), v); !slices.Equal(out, coarse) {
			rt.Fatalf("of %v\nkept with 2 bits %v\nwant %v", v, out, coarse)
		}
	})
}

// twoMagnitudes is a reference implementation of values with 2 bits. It rounds the elements of a
// chunk at the given positions to one of two magnitudes. A threshold separates small from large
// elements. The threshold starts at the mean magnitude. Then, eight times, it becomes the midpoint
// between the means of the small and of the large elements.
func twoMagnitudes(dst, v []float32, places []int) {
	mean := func(part []int) float64 {
		sum := 0.0
		for _, i := range part {
			sum += math.Abs(float64(v[i]))
		}
		return sum / float64(max(1, len(part)))
	}
	split := func(from float64) (small, large []int) {
		for _, i := range places {
			if math.Abs(float64(v[i])) < from {
				small = append(small, i)
			} else {
				large = append(large, i)
			}
		}
		return small, large
	}
	low, high := 0.0, mean(places)
	small, large := split(high)
	for range 8 {
		if len(small) > 0 {
			low, high = mean(small), mean(large)
			small, large = split((low + high) / 2)
		}
	}
	for part, level := range map[*[]int]float64{&small: low, &large: high} {
		for _, i := range *part {
			magnitude := float64(dtype.ToBFloat16(float32(level)).Float32())
			dst[i] = float32(math.Copysign(magnitude, float64(v[i])))
		}
	}
}

// For random values the two magnitudes are close to the best pair. The test finds the best pair by
// trying all ways to split the sorted magnitudes in two parts.
func TestTwoMagnitudesAreNearTheBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for trial := range 50 {
		v := make([]float32, 256) // all elements are kept
		for i := range v {
			v[i] = float32(rng.NormFloat64())
			if trial%2 == 1 { // longer tails
				v[i] = float32(math.Copysign(rng.ExpFloat64(), rng.Float64()-0.5))
			}
		}
		got := 0.0
		_, rest := decoded(t, must(t, "topk:0.5:2bit"), v)
		for _, x := range rest {
			got += float64(x) * float64(x)
		}
		var sizes []float64
		for _, x := range v {
			sizes = append(sizes, math.Abs(float64(x)))
		}
		slices.Sort(sizes)
		scatter := func(part []float64) float64 {
			sum, squares := 0.0, 0.0
			for _, x := range part {
				sum, squares = sum+x, squares+x*x
			}
			return squares - sum*sum/float64(max(1, len(part)))
		}
		best := math.Inf(1)
		for i := range sizes {
			best = min(best, scatter(sizes[:i])+scatter(sizes[i:]))
		}
		if got > 1.1*best {
			t.Errorf("squared error %v, the best is %v", got, best)
		}
	}
}

// After coding, a vector with an infinity or a NaN still has an infinity or a NaN.
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

// The largest and the smallest float32 values can be coded.
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

// These are the compression ratios for a bucket of the default size.
func TestSizes(t *testing.T) {
	const n = 65536
	for name, want := range map[string]float64{"fp16": 1.999, "bf16": 2, "int8": 3.984, "topk": 117.7, "topk:0.1": 13.1,
		"topk:0.0156": 78, "topk:0.0156:2bit": 163} {
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

// A training run begins with an eighth of the elements, or with the fraction of its coding if this
// fraction is larger.
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
		for _, width := range []string{"", ":2bit"} {
			if got := compress.At(must(t, "topk:0.01"+width), step).Name(); got != want+width {
				t.Errorf("step %d: %s, want %s", step, got, want+width)
			}
		}
	}
	if compress.At(nil, 1) != nil {
		t.Error("no coding becomes one")
	}
	// The additional elements of the first steps have at most the bytes of eight uncompressed
	// steps.
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

// FuzzAdd checks that arbitrary bytes decode to a vector or to an error, and give the same result each time.
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
	f.Add(bytes.Repeat([]byte{255}, 100), uint16(30), uint8(4))
	f.Fuzz(func(t *testing.T, b []byte, n uint16, kind uint8) {
		c := must(t, names()[int(kind)%len(names())])
		code := make([]byte, c.Size(int(n)%5000))
		copy(code, b)
		first, second := make([]float32, int(n)%5000), make([]float32, int(n)%5000)
		err, again := c.Add(first, code), c.Add(second, code)
		if (err == nil) != (again == nil) || !slices.EqualFunc(first, second, sameBits) {
			t.Errorf("%s: %v, and then %v", c.Name(), err, again)
		}
	})
}
