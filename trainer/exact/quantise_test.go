package exact

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// slowRound is an independent implementation of the quantisation, in exact arithmetic: it returns g * 2^e rounded to the nearest
// integer, ties to even.
func slowRound(g float32, e int) *big.Int {
	x := new(big.Float).SetPrec(400).SetFloat64(float64(g))
	x.SetMantExp(x, e)
	floor, _ := x.Int(nil)
	if x.Sign() < 0 && new(big.Float).SetInt(floor).Cmp(x) != 0 {
		floor.Sub(floor, big.NewInt(1))
	}
	rest := new(big.Float).SetPrec(400).Sub(x, new(big.Float).SetPrec(400).SetInt(floor))
	half := rest.Cmp(big.NewFloat(0.5))
	if half > 0 || half == 0 && floor.Bit(0) == 1 {
		floor.Add(floor, big.NewInt(1))
	}
	return floor
}

// anyFloat draws any finite float32, with a preference for extreme values.
func anyFloat() *rapid.Generator[float32] {
	edges := []float32{0, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32, 0x1p-126, 0x1.fffffcp-127,
		math.MaxFloat32, 0x1p127, 1, 0.5, 1.5, 2.5, -0.5, -1.5, -math.MaxFloat32}
	return rapid.OneOf(rapid.SampledFrom(edges), rapid.Custom(func(t *rapid.T) float32 {
		f := math.Float32frombits(rapid.Uint32().Draw(t, "bits"))
		if f-f != 0 {
			f = 1
		}
		return f
	}))
}

// gradients draws one parameter's gradients, n elements for each microbatch, with similar or dissimilar magnitudes.
func gradients(t *rapid.T, microbatches, n int) [][]float32 {
	ordinary := rapid.Custom(func(t *rapid.T) float32 {
		return float32(math.Ldexp(rapid.Float64Range(-1, 1).Draw(t, "fraction"), rapid.IntRange(-12, 6).Draw(t, "exponent")))
	})
	element := rapid.SampledFrom([]*rapid.Generator[float32]{ordinary, anyFloat()}).Draw(t, "kind")
	all := make([][]float32, microbatches)
	for k := range all {
		all[k] = rapid.SliceOfN(element, n, n).Draw(t, "gradient")
	}
	return all
}

// fitting returns the scale that fits these gradients in the end, and the number of attempts.
func fitting(s Scale, gradients [][]float32) (Scale, int) {
	for attempts := 1; ; attempts++ {
		var p Peak
		for _, g := range gradients {
			p = max(p, PeakOf(g))
		}
		if s.Fits([]Peak{p}) {
			return s, attempts
		}
		s = s.Next([]Peak{p})
	}
}

func newScale(t rapid.TB, params, microbatches int) Scale {
	t.Helper()
	s, err := New(params, microbatches)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Sums agree with exact arithmetic: they do not overflow, whatever the gradients are.
func TestSumsAgainstBigIntegers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, n := rapid.IntRange(1, 20).Draw(t, "microbatches"), rapid.IntRange(1, 11).Draw(t, "elements")
		all := gradients(t, k, n)
		s, attempts := fitting(newScale(t, 1, k), all)
		if attempts > 2 {
			t.Fatalf("%d attempts, want at most 2", attempts)
		}
		sums, want := make([]int32, n), make([]big.Int, n)
		for _, g := range all {
			s.Add(0, sums, g)
			for j, x := range g {
				want[j].Add(&want[j], slowRound(x, s.exponent(0)))
			}
		}
		for j := range sums {
			if !want[j].IsInt64() || want[j].Int64() != int64(sums[j]) {
				t.Fatalf("element %d: sum %d, want %v (scale 2^%d)", j, sums[j], &want[j], s.exponent(0))
			}
		}
	})
}

// This is the purpose of exact mode: neither the grouping nor the order nor the speed of peers changes the sums, the peaks or the
// next scale.
func TestAnyGroupingGivesEqualBits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, n := rapid.IntRange(1, 12).Draw(t, "microbatches"), rapid.IntRange(1, 9).Draw(t, "elements")
		all := gradients(t, k, n)
		s := newScale(t, 1, k)
		if rapid.Bool().Draw(t, "with history") {
			s, _ = fitting(s, all)
		}
		sums, peak := reduced(s, [][][]float32{all})
		peers := make([][][]float32, rapid.IntRange(1, 5).Draw(t, "peers"))
		for _, i := range rapid.Permutation(indices(k)).Draw(t, "order") {
			r := rapid.IntRange(0, len(peers)-1).Draw(t, "rank")
			peers[r] = append(peers[r], all[i])
		}
		others, otherPeak := reduced(s, peers)
		if peak != otherPeak || !s.Next([]Peak{peak}).Equal(s.Next([]Peak{otherPeak})) {
			t.Fatalf("peak %d alone, %d with %d peers", peak, otherPeak, len(peers))
		}
		if s.Fits([]Peak{peak}) && !slices.Equal(sums, others) {
			t.Fatalf("sums %v alone, %v with %d peers", sums, others, len(peers))
		}
	})
}

func indices(n int) []int {
	v := make([]int, n)
	for i := range v {
		v[i] = i
	}
	return v
}

// reduced adds each peer's microbatches, and reduces the peers' sums.
func reduced(s Scale, peers [][][]float32) (total []int32, peak Peak) {
	for _, mine := range peers {
		for i, g := range mine {
			if total == nil {
				total = make([]int32, len(g))
			}
			sums := make([]int32, len(g))
			peak = max(peak, s.Add(0, sums, mine[i]))
			for j := range sums {
				total[j] += sums[j]
			}
		}
	}
	return total, peak
}

// The sum is as large as possible if every microbatch has values at the limit, of either sign. It still does not overflow.
func TestNoSumWraps(t *testing.T) {
	for _, k := range []int{1, 2, 3, 32, 100, 1000, MaxMicrobatches} {
		s := newScale(t, 1, k)
		e := s.exponent(0)
		// This is the largest float32 below 2^(capacity-e). Its peak is the largest that fits the capacity.
		g := math.Nextafter32(float32(math.Ldexp(1, s.capacity-e)), 0)
		over := float32(math.Ldexp(1, s.capacity-e))
		if !s.Fits([]Peak{PeakOf([]float32{g})}) || s.Fits([]Peak{PeakOf([]float32{over})}) {
			t.Fatalf("%d microbatches: the limit is not at 2^%d", k, s.capacity-e)
		}
		sums, want := make([]int32, 2), int64(0)
		for range k {
			s.Add(0, sums, []float32{g, -g})
			want += slowRound(g, e).Int64()
		}
		if want > math.MaxInt32 || int64(sums[0]) != want || int64(sums[1]) != -want {
			t.Errorf("%d microbatches: sums %v, want ±%d", k, sums, want)
		}
	}
}

func TestWhatIsNotAddable(t *testing.T) {
	s := newScale(t, 1, 8)
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, bad := range []float32{inf, -inf, nan, -nan, math.Float32frombits(0x7f800001)} {
		for n := 1; n < 10; n++ {
			for at := range n {
				g := make([]float32, n)
				g[at] = bad
				sums := make([]int32, n)
				p := s.Add(0, sums, g)
				if i := NotFinite([]Peak{0, p}); i != 1 || slices.Max(sums) != 0 {
					t.Fatalf("%v at %d of %d: parameter %d, sums %v", bad, at, n, i, sums)
				}
			}
		}
	}
	if NotFinite([]Peak{0, 254}) != -1 {
		t.Error("finite numbers are called not finite")
	}
	sums := []int32{5}
	if p := s.Add(0, sums, []float32{1e30}); s.Fits([]Peak{p}) || sums[0] != 5 {
		t.Errorf("a value over the limit fits, or changed the sum to %d", sums[0])
	}
}

// The peak agrees with its definition.
func TestPeak(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(anyFloat(), 0, 12).Draw(t, "v")
		p, largest := PeakOf(v), 0.0
		for _, x := range v {
			largest = max(largest, math.Abs(float64(x)))
		}
		if bound := math.Ldexp(1, int(p)-126); largest >= bound || p > 0 && largest < bound/2 {
			t.Fatalf("peak %d of a magnitude of %v", p, largest)
		}
	})
}

func TestMeanAgainstFloat64(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := Restore([]int8{int8(rapid.IntRange(minExponent, maxExponent).Draw(t, "exponent"))}, 7)
		if err != nil {
			t.Fatal(err)
		}
		sum, divisor := rapid.Int32().Draw(t, "sum"), rapid.Float64Range(0x1p-20, 0x1p40).Draw(t, "divisor")
		got := make([]float32, 1)
		s.Mean(0, got, []int32{sum}, divisor)
		want := math.Ldexp(float64(sum)/divisor, -s.exponent(0))
		if math.Abs(want) >= 0x1.ffffffp127 { // rounds to infinity
			want = math.Copysign(math.Inf(1), want)
		}
		if float64(got[0]) != want && math.Abs(float64(got[0])-want) > math.Abs(want)*0x1.001p-24+0x1p-150 {
			t.Fatalf("mean of %d divided by %v at 2^%d is %v, want %v", sum, divisor, s.exponent(0), got[0], want)
		}
	})
}

// Means agree with float64 sums, for gradients as in a training run.
func TestAccuracy(t *testing.T) {
	const k, n = 32, 1000
	rng := rand.New(rand.NewPCG(3, 4))
	all, want, largest := make([][]float32, k), make([]float64, n), 0.0
	for i := range all {
		all[i] = make([]float32, n)
		for j := range all[i] {
			x := float32(rng.NormFloat64() * 1e-3)
			all[i][j] = x
			want[j] += float64(x) / (16 * k)
			largest = max(largest, math.Abs(float64(x)))
		}
	}
	s, _ := fitting(newScale(t, 1, k), all)
	peak := PeakOf([]float32{float32(largest)})
	s = s.Next([]Peak{peak})
	for range 10 { // after some steps the exponent is the ideal exponent
		s = s.Next([]Peak{peak})
	}
	sums, got := make([]int32, n), make([]float32, n)
	for _, g := range all {
		s.Add(0, sums, g)
	}
	s.Mean(0, got, sums, float64(16*k))
	for j := range got {
		// The error of each of k values is at most half a unit, 2^-20 of the largest value.
		if off := math.Abs(float64(got[j]) - want[j]); off > largest/16*0x1p-19 {
			t.Fatalf("element %d: mean %v, want %v: off by %v", j, got[j], want[j], off)
		}
	}
}

func TestLengthsMustAgree(t *testing.T) {
	s := newScale(t, 2, 1)
	for name, call := range map[string]func(){
		"add":  func() { s.Add(0, make([]int32, 2), make([]float32, 3)) },
		"mean": func() { s.Mean(0, make([]float32, 2), make([]int32, 3), 1) },
		"fits": func() { s.Fits(make([]Peak, 1)) },
		"next": func() { s.Next(make([]Peak, 3)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
}

func BenchmarkAdd(b *testing.B) {
	for name, n := range map[string]int{"cache": 10_000, "memory": 10_000_000} {
		b.Run(name, func(b *testing.B) {
			s, err := New(1, 32)
			if err != nil {
				b.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(1, 1))
			g, sums := Aligned(n), make([]int32, n)
			for i := range g {
				g[i] = float32(rng.NormFloat64())
			}
			perElement(b, n, func() {
				clear(sums) // one step adds only its share to the sums
				s.Add(0, sums, g)
			})
		})
	}
}

func BenchmarkMean(b *testing.B) {
	const n = 10_000
	s, err := New(1, 32)
	if err != nil {
		b.Fatal(err)
	}
	dst, sums := Aligned(n), make([]int32, n)
	perElement(b, n, func() { s.Mean(0, dst, sums, 512) })
}

// BenchmarkFloatAdd measures a sum of floats without quantisation, for comparison.
func BenchmarkFloatAdd(b *testing.B) {
	const n = 10_000
	dst, g := Aligned(n), Aligned(n)
	perElement(b, n, func() {
		for i, x := range g {
			dst[i] += x
		}
	})
}

func perElement(b *testing.B, n int, f func()) {
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/element")
}
