package transporttest

import (
	"context"
	"fmt"
	"testing"

	"github.com/elrun/elrun/collective/transport"
)

// Benchmark measures the latency between two ranks, which is half a round trip of 8 bytes, and the throughput in one direction.
// make returns the transports; Benchmark closes them.
func Benchmark(b *testing.B, make func(b *testing.B) []transport.Transport) {
	b.Run("latency", func(b *testing.B) { measure(b, make(b), pingPong) })
	for _, size := range []int{64 << 10, 1 << 20, 16 << 20} {
		b.Run(fmt.Sprintf("stream/%dKiB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(size))
			measure(b, make(b), func(ctx context.Context, t transport.Transport, rank, rounds int) error {
				return oneWay(ctx, t, rank, rounds, size)
			})
		})
	}
}

// measure runs f at both ranks. Before the measured rounds it runs ten other rounds, which fill
// pools and windows.
func measure(b *testing.B, ts []transport.Transport, f func(ctx context.Context, t transport.Transport, rank, rounds int) error) {
	b.ReportAllocs()
	g := &group{ctx: context.Background(), ts: ts}
	run := func(rounds int) {
		if err := g.each(func(rank int) error { return f(g.ctx, ts[rank], rank, rounds) }); err != nil {
			b.Fatal(err)
		}
	}
	run(10)
	b.ResetTimer()
	run(b.N)
	b.StopTimer()
	if err := g.each(func(rank int) error { return ts[rank].Close() }); err != nil {
		b.Error(err)
	}
}

// pingPong lets the ranks send alternately. Each message has a new tag, as in collectives.
func pingPong(ctx context.Context, t transport.Transport, rank, rounds int) error {
	buf := make([]byte, 8)
	for i := range 2 * rounds {
		var err error
		if i%2 == rank {
			err = t.Send(ctx, 1-rank, tag(uint32(i)), buf)
		} else {
			err = t.Recv(ctx, 1-rank, tag(uint32(i)), buf)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// oneWay sends from rank 0 to rank 1. At the end rank 1 answers.
func oneWay(ctx context.Context, t transport.Transport, rank, rounds, size int) error {
	buf := make([]byte, size)
	for i := range rounds {
		var err error
		if rank == 0 {
			err = t.Send(ctx, 1, tag(uint32(i)), buf)
		} else {
			err = t.Recv(ctx, 0, tag(uint32(i)), buf)
		}
		if err != nil {
			return err
		}
	}
	if rank == 1 {
		return t.Send(ctx, 0, tag(1<<20), nil)
	}
	return t.Recv(ctx, 1, tag(1<<20), nil)
}
