package kernel

import (
	"fmt"
	"testing"

	"github.com/elrun/elrun/dtype"
)

// Throughput is measured in bytes of the result. A sum of k vectors transfers k+1 times as many bytes, a copy twice as many.

// benchmarkSizes returns lengths of vectors in bytes: one fits the first-level cache, one the second-level cache, and one
// neither.
func benchmarkSizes() []int { return []int{4 << 10, 256 << 10, 16 << 20} }

// ones returns vectors of ones.
func ones[T dtype.Number](count, bytes int) [][]T {
	v := make([][]T, count)
	for i := range v {
		v[i] = make([]T, bytes/Size[T]())
		for j := range v[i] {
			v[i][j] = FromFloat64[T](1)
		}
	}
	return v
}

// eachLevel runs f as a benchmark at every level and length.
func eachLevel(b *testing.B, f func(b *testing.B, l level, bytes int)) {
	for _, bytes := range benchmarkSizes() {
		for _, l := range levels() {
			b.Run(fmt.Sprintf("bytes=%d/level=%v", bytes, l), func(b *testing.B) {
				b.SetBytes(int64(bytes))
				f(b, l, bytes)
			})
		}
	}
}

// benchmarkFold measures an operation on two vectors of one type.
func benchmarkFold[T dtype.Number](b *testing.B, op operation) {
	b.Run(dtype.TypeOf[T]().String(), func(b *testing.B) {
		eachLevel(b, func(b *testing.B, l level, bytes int) {
			v := ones[T](3, bytes)
			for b.Loop() {
				fold(l, op, v[0], v[1], v[2])
			}
		})
	})
}

func BenchmarkAdd(b *testing.B) {
	benchmarkFold[int8](b, opAdd)
	benchmarkFold[int32](b, opAdd)
	benchmarkFold[int64](b, opAdd)
	benchmarkFold[float32](b, opAdd)
	benchmarkFold[float64](b, opAdd)
	benchmarkFold[dtype.Float16](b, opAdd)
	benchmarkFold[dtype.BFloat16](b, opAdd)
}

func BenchmarkMul(b *testing.B) {
	benchmarkFold[int8](b, opMul)
	benchmarkFold[int64](b, opMul)
	benchmarkFold[float32](b, opMul)
}

func BenchmarkMax(b *testing.B) {
	benchmarkFold[uint64](b, opMax)
	benchmarkFold[float32](b, opMax)
	benchmarkFold[dtype.BFloat16](b, opMax)
}

// The built-in copy gives an upper bound for the throughput of the kernels.
func BenchmarkCopy(b *testing.B) {
	for _, bytes := range benchmarkSizes() {
		b.Run(fmt.Sprintf("bytes=%d", bytes), func(b *testing.B) {
			v := ones[float32](2, bytes)
			b.SetBytes(int64(bytes))
			for b.Loop() {
				copy(v[0], v[1])
			}
		})
	}
}

// This measures sums of several vectors, with ordinary and with non-temporal stores.
func BenchmarkAddAll(b *testing.B) {
	for _, count := range []int{2, 4, 8} {
		for nonTemporal := range 2 {
			b.Run(fmt.Sprintf("vectors=%d/nonTemporal=%d", count, nonTemporal), func(b *testing.B) {
				eachLevel(b, func(b *testing.B, l level, bytes int) {
					v := ones[float32](count+1, bytes)
					for b.Loop() {
						addAll(l, v[:1], v[1:], nonTemporal)
					}
				})
			})
		}
	}
}
