package nn

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// integers draws a matrix of small integers, whose products are exact.
func integers(t *rapid.T, name string, rows, cols int) matrix {
	r := &random{state: rapid.Uint64().Draw(t, name)}
	m := asMatrix(make([]float32, rows*cols), rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(r.next()%7) - 3
	}
	return m
}

// The three products agree with their definition, for sizes smaller and larger than a tile.
func TestProductsAgainstTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		side := rapid.OneOf(rapid.IntRange(1, 9), rapid.SampledFrom([]int{63, 64, 65, 130, 191, 192, 193, 400}))
		m, n, k := side.Draw(t, "m"), side.Draw(t, "n"), rapid.IntRange(1, 20).Draw(t, "k")
		if m*n < 100 { // larger tests would take long
			k += partSize / (m + n) * rapid.IntRange(0, 2).Draw(t, "more")
			k -= rapid.IntRange(0, min(k-1, 20)).Draw(t, "less")
		}
		a, b, c := integers(t, "a", m, k), integers(t, "b", k, n), integers(t, "c", m, n)
		want := make([]float32, m*n)
		for i := range m {
			for j := range n {
				want[i*n+j] = c.Data[i*n+j]
				for l := range k {
					want[i*n+j] += a.Data[i*k+l] * b.Data[l*n+j]
				}
			}
		}
		products := map[string]func(c matrix){
			"addMul":      func(c matrix) { new(gemmer).addMul(c, a, b) },
			"addTransMul": func(c matrix) { new(gemmer).addTransMul(c, transposed(a), b) },
			"addMulTrans": func(c matrix) { new(gemmer).addMulTrans(c, a, transposed(b)) },
		}
		for name, product := range products {
			got := asMatrix(append([]float32(nil), c.Data...), m, n)
			product(got)
			for i := range want {
				if got.Data[i] != want[i] {
					t.Fatalf("%s of %d x %d x %d: element %d is %v, want %v", name, m, k, n, i, got.Data[i], want[i])
				}
			}
		}
	})
}

func transposed(m matrix) matrix {
	out := asMatrix(make([]float32, len(m.Data)), m.Cols, m.Rows)
	for i := range m.Rows {
		for j := range m.Cols {
			out.Data[j*m.Rows+i] = m.Data[i*m.Cols+j]
		}
	}
	return out
}

func TestSum(t *testing.T) {
	for n := range 11 {
		v := make([]float32, n)
		fill(v, 0.5)
		if got := sum(v); got != float32(n)/2 {
			t.Errorf("sum of %d halves is %v", n, got)
		}
	}
}

// The authors of the generator have published these numbers for the seed 1234567.
func TestRandomIsSplitMix64(t *testing.T) {
	r := &random{state: 1234567}
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423} {
		if got := r.next(); got != want {
			t.Errorf("number %d is %d, want %d", i, got, want)
		}
	}
	for range 1000 {
		if v := r.symmetric(); v < -1 || v >= 1 || math.IsNaN(v) {
			t.Fatalf("%v is not in [-1, 1)", v)
		}
	}
}
