package collective_test

import (
	"context"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/transport/mem"
)

// BenchmarkCallOfOne measures the overhead of a call: a group of one rank.
func BenchmarkCallOfOne(b *testing.B) {
	c, err := collective.New(mem.New(1)[0], 0, 1, collective.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	v := []float32{1}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if err := collective.AllReduce(ctx, c, v, v, collective.Sum[float32]); err != nil {
			b.Fatal(err)
		}
	}
}
