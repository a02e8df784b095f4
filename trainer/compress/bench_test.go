package compress_test

import (
	"fmt"
	"testing"
)

// Benchmarks for a bucket of the default size. Rates count the bytes of the float32 values before
// coding.
func BenchmarkCodings(b *testing.B) {
	const n = 65536
	v := make([]float32, n)
	fill := func() {
		for i := range v {
			v[i] = own(1, 2, i)
		}
	}
	for _, name := range names() {
		c := must(b, name)
		fill()
		code := make([]byte, c.Size(n))
		b.Run(fmt.Sprint(name, "/encode"), func(b *testing.B) {
			b.SetBytes(4 * n)
			for b.Loop() {
				b.StopTimer()
				fill()
				b.StartTimer()
				c.Encode(code, v)
			}
		})
		b.Run(fmt.Sprint(name, "/add"), func(b *testing.B) {
			b.SetBytes(4 * n)
			for b.Loop() {
				if err := c.Add(v, code); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
