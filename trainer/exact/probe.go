package exact

import (
	"math"

	"github.com/cespare/xxhash/v2"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/internal/product"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
)

// Probe computes fixed numbers with the kernels and functions that training uses, and returns a
// hash of all bits of the results. Peers with different probes would not compute the same
// weights: they run on another architecture, were built for another processor level, or have
// other versions of the kernels. It takes well under 10 ms and returns the same hash on every
// call in one program.
//
// Equal probes do not prove that all results are equal, but the differences that occur in practice
// change the probe.
func Probe() uint64 {
	h := xxhash.New()
	for _, shape := range [][3]int{{1, 1, 1}, {3, 5, 7}, {16, 17, 33}, {64, 100, 67}, {5, 3, 900}, {130, 140, 31}} {
		for _, v := range products(shape[0], shape[1], shape[2]) {
			h.Write(kernel.Bytes(v)) // never fails
		}
		for _, v := range ownProducts(shape[0], shape[1], shape[2]) {
			h.Write(kernel.Bytes(v))
		}
	}
	h.Write(kernel.Bytes(functions(500)))
	h.Write(kernel.Bytes(fusable(500)))
	return h.Sum64()
}

// ownProducts returns the two products of package product, with m x n elements that are sums of k
// terms. Both numbers are rounded up to multiples of product.Lanes. trainer/nn computes with them.
func ownProducts(m, n, k int) [][]float32 {
	n, k = (n+product.Lanes-1)/product.Lanes*product.Lanes, (k+product.Lanes-1)/product.Lanes*product.Lanes
	var (
		rows    []product.Row
		columns []product.Column
		terms   []product.Term
		spans   []product.Term
		own     product.Multiplier
	)
	for i := range m {
		rows = append(rows, product.Row{C: i * n, A: i * k})
	}
	for j := range n {
		columns = append(columns, product.Column{C: j, B: j * k})
	}
	for l := range k {
		terms = append(terms, product.Term{A: l, B: l * n})
		if l%product.Lanes == 0 {
			spans = append(spans, product.Term{A: l, B: l})
		}
	}
	a, b := numbers(m*k, 8), numbers(k*n, 9)
	outer, dots := numbers(m*n, 10), numbers(m*n, 11)
	own.Outer(product.Operands{C: outer, A: a, B: b}, rows, terms, product.AppendLines(nil, n), true)
	own.Dots(product.Operands{C: dots, A: a, B: b}, rows, columns, spans)
	return [][]float32{outer, dots}
}

// products returns three matrix products of gonum, a * b, a * b transposed and a transposed * b, with m x n
// elements that are sums of k terms, and a dot product.
func products(m, n, k int) [][]float32 {
	a, b := numbers(m*k, 1), numbers(k*n, 2)
	matrix := func(v []float32, rows, cols int) blas32.General {
		return blas32.General{Rows: rows, Cols: cols, Stride: cols, Data: v}
	}
	var results [][]float32
	add := func(opA, opB blas.Transpose, a, b blas32.General) {
		c := numbers(m*n, 3)
		blas32.Gemm(opA, opB, 1, a, b, 1, matrix(c, m, n))
		results = append(results, c)
	}
	add(blas.NoTrans, blas.NoTrans, matrix(a, m, k), matrix(b, k, n))
	add(blas.NoTrans, blas.Trans, matrix(a, m, k), matrix(b, n, k))
	add(blas.Trans, blas.NoTrans, matrix(a, k, m), matrix(b, k, n))
	x, y := blas32.Vector{N: k, Inc: 1, Data: a}, blas32.Vector{N: k, Inc: 1, Data: b}
	dot := blas32.Dot(x, y)
	blas32.Axpy(dot, x, y)
	return append(results, b)
}

// functions returns results of the functions in losses, activations, optimizers and schedules. On
// some machines some of them are written in assembly, and use instructions that not every
// processor of the architecture has.
func functions(n int) []float64 {
	var results []float64
	for _, v := range numbers(n, 4) {
		x := 8 * float64(v)
		results = append(results, math.Exp(x), math.Log(x*x+1e-3), math.Tanh(x), math.Sqrt(x*x+1),
			math.Pow(0.999, 1000*x*x), math.Cos(x), math.Expm1(x), math.Log1p(x*x))
	}
	return results
}

// fusable returns sums of products in plain Go. Compilers for some machines use fused
// multiply-add, which rounds once instead of twice.
func fusable(n int) []float32 {
	x, y, z := numbers(n, 5), numbers(n, 6), numbers(n, 7)
	for i := range z {
		z[i] += x[i] * y[i]
	}
	return z
}

// numbers returns n numbers between -1 and 1 with full mantissas, at an aligned address, from a
// linear congruential generator.
func numbers(n int, seed uint64) []float32 {
	v := Aligned(n)
	for i := range v {
		seed = seed*6364136223846793005 + 1442695040888963407
		v[i] = float32(int32(seed>>32)) / (1 << 31)
	}
	return v
}
